"""Says once of each field that nobody knows that it has no effect."""

import logging

from aspira.frontends.generation.fields import Fields

_MAX_LOGGED_NAMES = 256
_MAX_NAME_LENGTH = 64

_logger = logging.getLogger(__name__)


class UnknownFields:
    """The names that were logged: a limited number of short ones, since clients choose them."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, fields: Fields) -> None:
        """After all known fields were read."""
        for name in fields.unread():
            is_full = len(self._logged) >= _MAX_LOGGED_NAMES
            if name not in self._logged and not is_full and len(name) <= _MAX_NAME_LENGTH:
                self._logged.add(name)
                _logger.warning("The field %r of a generation request has no effect here", name)
