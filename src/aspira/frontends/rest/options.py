"""How REST requests are taken; one field, one flag."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestOptions:
    """Defaults are TensorFlow Serving's."""

    timeout_s: float = 30.0
    """Deadline of each inference; 0 or less means none."""

    is_cors_enabled: bool = False
    """Let pages of other origins use the API."""
