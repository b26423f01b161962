"""Tells a slow engine from one that hangs, by its steps and without asking it."""

from typing import NamedTuple

from aspira.contracts.clock import Clock

_SHORTEST_LIMIT_S = 10.0
_TIMES_SLOWEST = 20.0
"""A step that takes this much longer than any before it is one that hangs."""


class _Busy(NamedTuple):
    """What is going on since the last beat. `own_limit_s` is None for a step."""

    since: float
    own_limit_s: float | None


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
        # Replaced whole: a reader must not measure a step by another one's limit.
        self._busy: _Busy | None = None

    @property
    def limit_s(self) -> float:
        """How long what is going on may take."""
        return self._limit_of(self._busy)

    @property
    def is_stalled(self) -> bool:
        """Whether there is work and no step ended for longer than one may take."""
        busy = self._busy
        return self._elapsed_s(busy) > self._limit_of(busy)

    @property
    def is_stuck(self) -> bool:
        """Whether it is so long that there is no hope left."""
        busy = self._busy
        return self._elapsed_s(busy) > max(self._limit_of(busy), self._longest_s)

    def beat(self, *, limit_s: float | None = None) -> None:
        """There is work, and the engine gets on with it: a step, or what has its own limit."""
        self._busy = _Busy(self._clock.now(), limit_s)

    def learn(self) -> None:
        """The step of the last beat has ended."""
        self._slowest_s = max(self._slowest_s, self._elapsed_s(self._busy))

    def rest(self) -> None:
        """There is nothing to do."""
        self._busy = None

    def _limit_of(self, busy: _Busy | None) -> float:
        if busy is not None and busy.own_limit_s is not None:
            return busy.own_limit_s
        if not self._slowest_s:
            return self._longest_s
        return min(max(_SHORTEST_LIMIT_S, _TIMES_SLOWEST * self._slowest_s), self._longest_s)

    def _elapsed_s(self, busy: _Busy | None) -> float:
        return 0.0 if busy is None else self._clock.now() - busy.since
