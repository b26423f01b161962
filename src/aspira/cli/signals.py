"""The first signal asks for an orderly end; a second SIGTERM or SIGINT ends at once.

A terminal that closes may send SIGHUP twice, and means nothing by the second. Where it is ignored,
as `nohup` has it, it stays so. SIGINT does not: shells ignore it for all that they start behind
themselves, and those who send it to a server by name mean it.
"""

import asyncio
import os
import signal
from collections.abc import Callable

EXIT_FORCED = 130
_SHELL_STATUS = 128
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def end_on_signals() -> None:
    """Until a loop takes over; nothing is to be ended in order yet, but process 1 must listen."""
    for number in _heard():
        signal.signal(number, lambda _number, _frame: os._exit(0))


class ShutdownSignals:
    """Installed on the running loop, so that it works for process 1 too.

    `end_at_once` gets the exit status. Unless `is_drained`, it is called at the first signal.
    """

    def __init__(self, end_at_once: Callable[[int], None], *, is_drained: bool) -> None:
        self._end_at_once = end_at_once
        self._is_drained = is_drained
        self._requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _heard():
            loop.add_signal_handler(number, self._take, number)

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._requested.wait()

    def _take(self, number: signal.Signals) -> None:
        if not self._is_drained:
            # What a shell says of a program that the signal has killed.
            self._end_at_once(_SHELL_STATUS + number)
        if self._requested.is_set() and number != signal.SIGHUP:
            self._end_at_once(EXIT_FORCED)
        self._requested.set()


def _heard() -> list[signal.Signals]:
    is_hang_up_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in _SIGNALS if number != signal.SIGHUP or not is_hang_up_ignored]
