"""Fails what waits past its deadline, with one timer instead of one per request.

Nearly every request ends long before its deadline, so arming and disarming a timer for each would
be work for nothing. Here a timer is armed only when an earlier deadline than the armed one comes
in; when it fires it looks at everything that still waits.
"""

import asyncio

from aspira.contracts.clock import Clock
from aspira.contracts.errors import DeadlineExceeded
from aspira.contracts.tensors import Tensors

Waiting = asyncio.Future[Tensors]


def deadline_exceeded() -> DeadlineExceeded:
    """The one error for all that is late, in TensorFlow Serving's words."""
    return DeadlineExceeded("Timed out waiting for notification")


class DeadlineWatch:
    """Event loop only. A late future is failed with `deadline_exceeded`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines: dict[Waiting, float] = {}
        self._armed_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, future: Waiting, *, deadline: float) -> None:
        """Fail `future` at `deadline`, in seconds of the clock, unless it is removed before."""
        self._deadlines[future] = deadline
        if self._armed_at is None or deadline < self._armed_at:
            self._arm(deadline)

    def remove(self, future: Waiting) -> None:
        """Watch it no longer."""
        self._deadlines.pop(future, None)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = deadline
        delay_s = max(deadline - self._clock.now(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        now = self._clock.now()
        for future in [future for future, at in self._deadlines.items() if at <= now]:
            del self._deadlines[future]
            if not future.done():
                future.set_exception(deadline_exceeded())
        self._armed_at, self._timer = None, None
        if self._deadlines:
            self._arm(min(self._deadlines.values()))
