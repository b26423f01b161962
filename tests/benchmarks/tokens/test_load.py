"""The load generator against a server that answers as it is told."""

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

EVENTS = (
    b'data: {"choices": [{"text": " a"}]}\n\n'
    b'data: {"choices": [{"text": ""}]}\n\n'
    b": keep-alive\n\n"
    b'data: {"choices": [{"delta": {"content": "b"}}]}\r\n\r\n'
)
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def load(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("tokens.load")


def chunked(*parts: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))


async def put_on(load: ModuleType, answer: bytes, *, num_bodies: int = 1, **when: Any) -> Any:
    """The result of a load on a server that gives one answer to all; who was asked at once."""
    num_open = most_open = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_open, most_open
        num_open += 1
        most_open = max(most_open, num_open)
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = (line.split()[1] for line in head.split(b"\r\n") if b"Content-Length" in line)
        await reader.readexactly(int(length))
        half = len(answer) // 2
        for piece in (answer[:half], answer[half:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        num_open -= 1
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        bodies = tuple({"prompt": [number]} for number in range(num_bodies))
        result = await load.apply(load.Load(port, "/v1/completions", bodies, **when))
    return result, most_open


def timeline_of(load: ModuleType, answer: bytes) -> Any:
    result, _ = asyncio.run(put_on(load, answer, num_clients=1))
    (timeline,) = result.timelines
    return timeline


def test_texts_are_counted_and_timed(load: ModuleType) -> None:
    timeline = timeline_of(load, chunked(EVENTS[:30], EVENTS[30:], USAGE, DONE))
    assert timeline.error == ""
    assert timeline.text == " ab"
    assert timeline.num_tokens == 7
    assert len(timeline.texts_at) == 2
    assert timeline.asked_at < timeline.texts_at[0] <= timeline.texts_at[1] <= timeline.ended_at


def test_without_usage_events_count(load: ModuleType) -> None:
    assert timeline_of(load, chunked(EVENTS, DONE)).num_tokens == 2


def test_a_finish_reason_ends_an_answer_that_is_whole(load: ModuleType) -> None:
    last = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n'
    whole = chunked(EVENTS, last)
    assert timeline_of(load, whole).error == ""
    assert timeline_of(load, whole.removesuffix(b"0\r\n\r\n")).error == "the answer broke off"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (chunked(EVENTS), "the answer broke off"),
        (chunked(EVENTS, b'data: {"error": "lost"}\n\n', DONE), "lost"),
        (b"HTTP/1.1 429 No\r\nContent-Length: 4\r\n\r\nfull", "status 429: full"),
        (b"something else\r\n\r\n", "no HTTP: "),
        (b"", "status 0: "),
    ],
)
def test_what_went_wrong_is_kept(load: ModuleType, answer: bytes, error: str) -> None:
    assert timeline_of(load, answer).error.startswith(error)


def test_a_server_that_is_not_there(load: ModuleType) -> None:
    result = asyncio.run(load.apply(load.Load(1, "/", ({},), num_clients=1)))
    assert result.timelines[0].error.startswith("no connection: ")


def test_clients_ask_again_and_never_more_at_once(load: ModuleType) -> None:
    result, most_open = asyncio.run(
        put_on(load, chunked(EVENTS, DONE), num_bodies=12, num_clients=3)
    )
    assert [timeline.error for timeline in result.timelines] == [""] * 12
    assert most_open == 3


def test_arrivals_do_not_wait_for_answers(load: ModuleType) -> None:
    arrivals = (0.0, 0.001, 0.002, 0.003)
    result, _ = asyncio.run(put_on(load, chunked(EVENTS, DONE), num_bodies=4, arrivals=arrivals))
    asked_at = [timeline.asked_at for timeline in result.timelines]
    assert asked_at == sorted(asked_at)
    assert asked_at[-1] - asked_at[0] >= 0.002


def test_loads_and_results_travel(load: ModuleType) -> None:
    sent = load.Load(80, "/x", ({"prompt": [1]},), arrivals=(0.5,))
    assert load.decode_load(load.encode_load(sent)) == sent
    result, _ = asyncio.run(put_on(load, chunked(EVENTS, DONE), num_clients=1))
    assert load.decode_result(load.encode_result(result)) == result
