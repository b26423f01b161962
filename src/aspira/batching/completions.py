"""Brings results from worker threads to the event loop, many for one wake-up.

Waking the loop costs a system call. Under load several results are ready by the time the loop
gets to them, so a thread wakes it only if no wake-up is under way.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class Completions(Generic[ResultT]):
    """One per loop; any thread posts, the loop delivers in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[asyncio.Future[ResultT], ResultT | BaseException]] = deque()
        self._is_waking = False

    def post(
        self, outcomes: Iterable[tuple[asyncio.Future[ResultT], ResultT | BaseException]]
    ) -> None:
        """Resolve each future on the loop; an exception as outcome is raised there."""
        self._posted.extend(outcomes)
        # Between the append and this read the loop may have drained: then this wakes it once more
        # for nothing. The other order could lose a result.
        if not self._is_waking:
            self._is_waking = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_waking = False
        while self._posted:
            future, outcome = self._posted.popleft()
            if future.done():
                continue
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
