import asyncio
from collections import deque

import pytest

from asgi_exchange import Event
from aspira.contracts.errors import Cancelled
from aspira.frontends import departures
from aspira.frontends.departures import DepartureWatch

STILL_THERE: Event = {"type": "http.request", "body": b"", "more_body": False}
GONE: Event = {"type": "http.disconnect"}


class AskedServer:
    """A server that tells at once what there is to tell, and at last raises `error`."""

    def __init__(self, *events: Event, error: Exception | None = None) -> None:
        self._events = deque(events)
        self._error = error
        self.num_asked = 0

    async def receive(self) -> Event:
        self.num_asked += 1
        if self._events:
            return self._events.popleft()
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture(autouse=True)
def _tick_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "_TICK_S", 0.0)


async def wait_under(watch: DepartureWatch, server: AskedServer, *, until: asyncio.Event) -> None:
    waiting = watch.add(server.receive)
    try:
        await until.wait()
    finally:
        watch.remove(waiting)


def run_until_left(server: AskedServer) -> None:
    async def run() -> None:
        async with asyncio.timeout(10):
            await wait_under(DepartureWatch(), server, until=asyncio.Event())

    asyncio.run(run())


def test_a_wait_ends_when_its_client_leaves() -> None:
    server = AskedServer(STILL_THERE, STILL_THERE, GONE)
    with pytest.raises(Cancelled, match="The client went away"):
        run_until_left(server)
    assert server.num_asked == 3


def test_an_error_of_the_connection_is_a_departure() -> None:
    with pytest.raises(Cancelled):
        run_until_left(AskedServer(STILL_THERE, error=ConnectionResetError()))


def test_a_server_that_answers_only_with_news_is_asked_once() -> None:
    async def run() -> int:
        server, end = AskedServer(), asyncio.Event()
        waiting = asyncio.create_task(wait_under(DepartureWatch(), server, until=end))
        for _ in range(100):
            await asyncio.sleep(0)
        end.set()
        await waiting
        return server.num_asked

    assert asyncio.run(run()) == 1


class LateServer(AskedServer):
    """Answers after the request has ended, as servers do."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    async def receive(self) -> Event:
        self.num_asked += 1
        return await self.answer


def test_a_question_that_stands_is_not_taken_back_and_its_answer_changes_nothing() -> None:
    async def run() -> int:
        server, end = LateServer(), asyncio.Event()
        waiting = asyncio.create_task(wait_under(DepartureWatch(), server, until=end))
        while not server.num_asked:
            await asyncio.sleep(0)
        end.set()
        await waiting
        await asyncio.sleep(0)
        assert not server.answer.cancelled()
        server.answer.set_result(GONE)
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0)
        return server.num_asked

    assert asyncio.run(run()) == 1


def test_a_request_that_is_answered_at_once_is_never_asked_for() -> None:
    async def run() -> int:
        watch, server = DepartureWatch(), AskedServer(GONE)
        done = asyncio.Event()
        done.set()
        for _ in range(10):
            await wait_under(watch, server, until=done)
            await asyncio.sleep(0)
        return server.num_asked

    assert asyncio.run(run()) == 0


def test_questions_are_rarer_than_ticks() -> None:
    async def run() -> tuple[int, int]:
        watch, server = DepartureWatch(), AskedServer(*[STILL_THERE] * 100)
        num_ticks = 0

        def count_tick() -> None:
            nonlocal num_ticks
            num_ticks += 1
            type(watch)._tick(watch)

        watch._tick = count_tick  # type: ignore[method-assign]
        end = asyncio.Event()
        waiting = asyncio.create_task(wait_under(watch, server, until=end))
        while num_ticks < 22:
            await asyncio.sleep(0)
        end.set()
        await waiting
        return num_ticks, server.num_asked

    num_ticks, num_asked = asyncio.run(run())
    assert 3 <= num_asked <= num_ticks / 4


def test_somebody_elses_cancellation_goes_on() -> None:
    async def run() -> bool:
        server = AskedServer(STILL_THERE)
        waiting = asyncio.create_task(wait_under(DepartureWatch(), server, until=asyncio.Event()))
        while not server.num_asked:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        return waiting.cancelled()

    assert asyncio.run(run())


def test_the_task_lives_on_after_its_client_has_left() -> None:
    async def run() -> str:
        with pytest.raises(Cancelled):
            await wait_under(DepartureWatch(), AskedServer(GONE), until=asyncio.Event())
        async with asyncio.timeout(10):
            await asyncio.sleep(0)
        return "answered"

    assert asyncio.run(run()) == "answered"
