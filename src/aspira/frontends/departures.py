"""Ends the work of clients that left: asks whether they are there while a request waits long.

Some servers tell of a client that left only when asked. Nearly every request is answered long
before asking is worth its time, so a request costs no task and no timer here: one timer looks at
all that wait, and asks only for those that it finds a second time.
"""

import asyncio
from typing import Any

from aspira.contracts.errors import Cancelled
from aspira.frontends.asgi import Receive

WaitingTask = asyncio.Task[Any]

_TICK_S = 0.05
# Ticks from one question to the next.
_ASK_EVERY = 5


class DepartureWatch:
    """The requests of one application that wait for their answers. Event loop only.

    The task that waits brackets its wait with `add` and `remove`:

        waiting = departures.add(receive)
        try:
            answer = await handle(request)
        finally:
            departures.remove(waiting)

    If the client leaves meanwhile, the task is cancelled, and `remove` makes an error of that.
    """

    def __init__(self) -> None:
        self._waiting: dict[WaitingTask, Receive] = {}
        self._long_waits: dict[WaitingTask, _LongWait] = {}
        self._is_ticking = False

    def add(self, receive: Receive) -> WaitingTask:
        """Watch the running task's client from now on; the request body has been read."""
        task = asyncio.current_task()
        assert task is not None
        self._waiting[task] = receive
        if not self._is_ticking:
            self._schedule_tick()
        return task

    def remove(self, task: WaitingTask) -> None:
        """Watch it no longer. Always called, by the task itself.

        Raises:
            Cancelled: the client has left, and for no other reason was the task cancelled.
        """
        del self._waiting[task]
        long_wait = self._long_waits.pop(task, None)
        if long_wait is not None:
            long_wait.end()

    def _schedule_tick(self) -> None:
        self._is_ticking = True
        asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._is_ticking = False
        for task, receive in self._waiting.items():
            long_wait = self._long_waits.get(task)
            if long_wait is None:
                self._long_waits[task] = _LongWait(task, receive=receive)
            else:
                long_wait.tick()
        if self._waiting:
            self._schedule_tick()


class _LongWait:
    """Asks for one client, now and then."""

    def __init__(self, task: WaitingTask, *, receive: Receive) -> None:
        self._task = task
        self._receive = receive
        self._num_ticks = 0
        self._asking: asyncio.Task[None] | None = None
        self._has_left = False

    def tick(self) -> None:
        """Ask if it is time. Where the server answers only with news, the question stands."""
        is_due = self._num_ticks % _ASK_EVERY == 0
        self._num_ticks += 1
        if is_due and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    def end(self) -> None:
        """Ask no more, and raise Cancelled if we cancelled the task and nobody else did."""
        if self._asking is not None:
            self._asking.cancel()
        if self._has_left and self._task.uncancel() == 0:
            raise Cancelled("The client went away")

    async def _ask(self) -> None:
        try:
            # Shielded: the server answers what it was asked even when nobody wants to know any
            # more, and pyvoy writes a traceback to the log if the question was cancelled.
            has_left = (await asyncio.shield(self._receive()))["type"] == "http.disconnect"
        except OSError:
            has_left = True
        if has_left:
            self._has_left = True
            self._task.cancel()
