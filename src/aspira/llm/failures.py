"""Makes errors of libraries and of our own defects into errors that a stream can end with."""

import logging

from aspira.contracts.errors import Internal, ServingError

_logger = logging.getLogger(__name__)


def as_serving_error(error: Exception) -> ServingError:
    """The error as one of our tree; its traceback goes to the log, not into the stream."""
    if isinstance(error, ServingError):
        return error.with_traceback(None)
    _logger.error("Generating failed with an unforeseen error", exc_info=error)
    return Internal(f"{type(error).__name__}: {error}")
