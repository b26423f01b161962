"""How REST requests are taken; one field, one flag."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestOptions:
    """One class for the whole REST port."""

    timeout_s: float = 30.0
    """Deadline of each inference; 0 or less means none."""

    is_cors_enabled: bool = False
    """Let pages of other origins use the API."""

    is_extended: bool = True
    """Serve paths that TensorFlow Serving does not have."""

    is_url_lenient: bool = True
    """Take a query string, a slash at the end, verbs in upper case, and HEAD as GET."""

    is_every_error_explained: bool = True
    """Give each error a body."""

    is_narrow_integer_checked: bool = True
    """Refuse integers out of range for int8, int16 and uint8 instead of cutting them off."""
