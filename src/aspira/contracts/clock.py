"""Time as a dependency, so that code that waits can be tested without waiting."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds. Deadlines everywhere are absolute values of `now()`."""

    def now(self) -> float: ...


class SystemClock:
    """The machine's monotonic clock, the one asyncio's loops use too."""

    now = staticmethod(time.monotonic)


class ThreadCpuClock:
    """The CPU time of the thread that asks."""

    now = staticmethod(time.thread_time)
