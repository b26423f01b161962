"""Which signals ask for an end, and which insist on it."""

import asyncio
import signal
from collections.abc import Callable

import pytest

from aspira.cli.signals import EXIT_FORCED, ShutdownSignals

NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def nothing_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests, nohup for one."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_DFL)


class Signals:
    """A loop's, but none is really sent: OpenVINO leaves threads on which that is the end."""

    def __init__(self, *, is_drained: bool = True) -> None:
        self.statuses: list[int] = []
        """The exit statuses with which an end at once was asked for."""
        self.handlers: dict[signal.Signals, Callable[[], None]] = {}
        asyncio.run(self._install(is_drained=is_drained))

    async def _install(self, *, is_drained: bool) -> None:
        def add(number: signal.Signals, handle: Callable[..., None], *arguments: object) -> None:
            self.handlers[number] = lambda: handle(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "add_signal_handler", add)
            ShutdownSignals(self.statuses.append, is_drained=is_drained)

    def send(self, *numbers: signal.Signals) -> list[int]:
        for number in numbers:
            self.handlers[number]()
        return self.statuses


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_asks(number: signal.Signals) -> None:
    assert Signals().send(number) == []


@pytest.mark.parametrize(
    ("second", "statuses"),
    [(signal.SIGTERM, [EXIT_FORCED]), (signal.SIGINT, [EXIT_FORCED]), (signal.SIGHUP, [])],
)
def test_the_second_one_insists_unless_a_terminal_closes(
    second: signal.Signals, statuses: list[int]
) -> None:
    assert Signals().send(signal.SIGHUP, second) == statuses


@pytest.mark.parametrize(("number", "status"), list(zip(NUMBERS, (143, 130, 129), strict=True)))
def test_as_the_original_the_first_signal_ends_at_once(number: signal.Signals, status: int) -> None:
    assert Signals(is_drained=False).send(number) == [status]


def test_a_hang_up_that_is_ignored_stays_so_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_IGN)
    assert Signals().handlers.keys() == {signal.SIGTERM, signal.SIGINT}
