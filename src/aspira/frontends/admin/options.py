"""Where the admin port is; one field, one flag."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """A listener of its own, open before models load and until the process ends."""

    port: int = 0
    """0 opens none."""

    host: str = ""
    """Address to bind; empty means the one that the other ports are bound to."""
