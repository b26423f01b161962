"""Ends the work of clients that left: asks whether they are there while a request waits long.

Some servers tell of a client that left only when asked. Nearly every request is answered long
before asking is worth its time, so a request costs no task and no timer here: one timer looks at
all that wait, and only those that it finds a second time are asked for.
"""

import asyncio
from types import TracebackType
from typing import Any

from aspira.contracts.errors import Cancelled
from aspira.frontends.asgi import Receive

_TICK_S = 0.05
# A request is asked for on its second tick, and then once in so many.
_FIRST_TICK = 2
_TICKS_BETWEEN = 5


class DepartureWatch:
    """The requests of one application that wait for their answers. Event loop only."""

    def __init__(self) -> None:
        self._requests: set[WatchedRequest] = set()
        self._is_ticking = False

    def watch(self, receive: Receive) -> "WatchedRequest":
        """To be entered once the body has been read, by the task that waits for the answer.

        If the client leaves before the block ends, what the block awaits is cancelled, and the
        block raises Cancelled.
        """
        return WatchedRequest(receive, watch=self)

    def add(self, request: "WatchedRequest") -> None:
        """Begin to look at it."""
        self._requests.add(request)
        if not self._is_ticking:
            self._schedule_tick()

    def remove(self, request: "WatchedRequest") -> None:
        """Look at it no longer."""
        self._requests.discard(request)

    def _schedule_tick(self) -> None:
        self._is_ticking = True
        asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        for request in self._requests:
            request.grow_older()
        if self._requests:
            self._schedule_tick()


class WatchedRequest:
    """A context manager around the wait for an answer; see `DepartureWatch.watch`."""

    __slots__ = ("_asking", "_has_left", "_num_ticks", "_receive", "_task", "_watch")

    def __init__(self, receive: Receive, *, watch: DepartureWatch) -> None:
        self._receive = receive
        self._watch = watch
        self._task: asyncio.Task[Any] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._num_ticks = 0
        self._has_left = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._watch.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watch.remove(self)
        if self._asking is not None:
            self._asking.cancel()
        if self._has_left:
            self._take_back_cancellation(error)

    def grow_older(self) -> None:
        """Ask for the client if it is time and the last question has been answered."""
        self._num_ticks += 1
        is_due = self._num_ticks % _TICKS_BETWEEN == _FIRST_TICK
        if is_due and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        try:
            event = await self._receive()
        except OSError:
            event = {"type": "http.disconnect"}
        if event["type"] == "http.disconnect" and self._task is not None:
            self._has_left = True
            self._task.cancel()

    def _take_back_cancellation(self, error: BaseException | None) -> None:
        """Turn our own cancellation into an error; somebody else's goes on."""
        is_ours_alone = self._task is not None and self._task.uncancel() == 0
        if is_ours_alone and isinstance(error, asyncio.CancelledError):
            raise Cancelled("The client went away") from error
