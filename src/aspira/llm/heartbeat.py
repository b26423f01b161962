"""Tells a slow engine from one that hangs, by its steps and without asking it."""

from aspira.contracts.clock import Clock


class Heartbeat:
    """Written by the engine's thread, read by any. While there is work, steps must go on."""

    def __init__(self, clock: Clock, *, timeout_s: float) -> None:
        self._clock = clock
        self.timeout_s = timeout_s
        self._busy_since: float | None = None

    def beat(self) -> None:
        """There is work, and the engine gets on with it."""
        self._busy_since = self._clock.now()

    def rest(self) -> None:
        """There is nothing to do."""
        self._busy_since = None

    @property
    def is_stalled(self) -> bool:
        """Whether there is work and no step ended for too long."""
        busy_since = self._busy_since
        return busy_since is not None and self._clock.now() - busy_since > self.timeout_s
