"""Tells a slow engine from one that hangs, by its steps and without asking it."""

from aspira.contracts.clock import Clock

_SHORTEST_LIMIT_S = 10.0
_TIMES_SLOWEST = 20.0
"""A step that takes this much longer than any before it is one that hangs."""


class Heartbeat:
    """Written by the engine's thread, read by any. While there is work, steps must go on.

    What a step may take is learned from those that were made, warm-up included: a small model that
    hangs is found in seconds, a large one is not taken for dead when it is only slow.
    """

    def __init__(self, clock: Clock, *, longest_s: float) -> None:
        """`longest_s` is what no step takes, whatever was learned."""
        self._clock = clock
        self._longest_s = longest_s
        self._slowest_s = 0.0
        self._own_limit_s: float | None = None
        self._busy_since: float | None = None

    @property
    def limit_s(self) -> float:
        """How long what is going on may take."""
        if self._own_limit_s is not None:
            return self._own_limit_s
        if not self._slowest_s:
            return self._longest_s
        return min(max(_SHORTEST_LIMIT_S, _TIMES_SLOWEST * self._slowest_s), self._longest_s)

    @property
    def is_stalled(self) -> bool:
        """Whether there is work and no step ended for longer than one may take."""
        return self._busy_s() > self.limit_s

    @property
    def is_stuck(self) -> bool:
        """Whether it is so long that there is no hope left."""
        return self._busy_s() > max(self.limit_s, self._longest_s)

    def beat(self, *, limit_s: float | None = None) -> None:
        """There is work, and the engine gets on with it: a step, or what has its own limit."""
        self._own_limit_s = limit_s
        self._busy_since = self._clock.now()

    def learn(self) -> None:
        """The step of the last beat has ended."""
        self._slowest_s = max(self._slowest_s, self._busy_s())

    def rest(self) -> None:
        """There is nothing to do."""
        self._own_limit_s = None
        self._busy_since = None

    def _busy_s(self) -> float:
        busy_since = self._busy_since
        return 0.0 if busy_since is None else self._clock.now() - busy_since
