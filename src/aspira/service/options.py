"""How requests are understood; one field, one flag."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Defaults are TensorFlow Serving's."""

    is_method_name_checked: bool = False
    """Ask a signature only by the API that its `method_name` is for."""
