"""A clock that moves only when told to."""


class JumpClock:
    """Starts at 0 seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds
