"""The first SIGTERM or SIGINT asks for an orderly end; the second one ends at once."""

import asyncio
import os
import signal
from collections.abc import Callable

EXIT_FORCED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_on_signals() -> None:
    """Until a loop takes over; nothing is to be ended in order yet, but process 1 must listen."""
    for number in _SIGNALS:
        signal.signal(number, lambda _number, _frame: os._exit(0))


class ShutdownSignals:
    """Installed on the running loop, so that it works for process 1 too."""

    def __init__(self, on_second: Callable[[], None]) -> None:
        self._on_second = on_second
        self._requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._take)

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._requested.wait()

    def _take(self) -> None:
        if self._requested.is_set():
            self._on_second()
        self._requested.set()
