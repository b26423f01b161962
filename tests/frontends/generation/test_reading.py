"""Streams read as one, and their silences."""

import asyncio
from contextlib import aclosing

import pytest

from aspira.contracts.generation import Delta, FinishReason
from aspira.frontends.generation.reading import read_streams
from aspira.llm.streams import StreamEnd, TokenStream

LAST = Delta(0, "a", (1,), finish_reason=FinishReason.STOP)


def open_stream() -> TokenStream:
    return TokenStream(lambda: None)


def end(stream: TokenStream) -> None:
    stream.deliver(LAST)
    stream.deliver(StreamEnd())


@pytest.mark.parametrize("num_streams", [1, 2])
def test_silence_is_told_again_and_again(num_streams: int) -> None:
    async def run() -> None:
        streams = [open_stream() for _ in range(num_streams)]
        async with aclosing(read_streams(streams, idle_s=0.001)) as arrivals:
            assert [await anext(arrivals) for _ in range(3)] == [None] * 3
            for stream in streams:
                end(stream)
            found = [arrival async for arrival in arrivals if arrival is not None]
        assert sorted(arrival.stream for arrival in found) == list(range(num_streams))
        assert [arrival.delta for arrival in found] == [LAST] * num_streams

    asyncio.run(run())


@pytest.mark.parametrize("num_streams", [1, 2])
@pytest.mark.parametrize("idle_s", [0.0, -1.0])
def test_no_time_at_all_tells_of_no_silence(num_streams: int, idle_s: float) -> None:
    async def run() -> None:
        streams = [open_stream() for _ in range(num_streams)]
        async with aclosing(read_streams(streams, idle_s=idle_s)) as arrivals:
            first = asyncio.ensure_future(anext(arrivals))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not first.done()
            for stream in streams:
                end(stream)
            found = [await first, *[arrival async for arrival in arrivals]]
        assert None not in found
        assert len(found) == num_streams

    asyncio.run(run())
