import asyncio

import pytest

from aspira.contracts.errors import Internal, ResourceExhausted
from aspira.contracts.generation import Delta, FinishReason, Usage
from aspira.llm.streams import StreamEnd, TokenStream

LAST = Delta(0, "!", (9,), finish_reason=FinishReason.LENGTH, usage=Usage(1, 3, 0))


def make_stream() -> tuple[TokenStream, list[str]]:
    aborts: list[str] = []
    return TokenStream(lambda: aborts.append("aborted")), aborts


async def read(stream: TokenStream) -> list[Delta]:
    return [delta async for delta in stream]


def test_a_slow_reader_gets_one_larger_delta_per_choice() -> None:
    async def scenario() -> None:
        stream, aborts = make_stream()
        for item in (Delta(0, "a", (1,)), Delta(1, "x", (7,)), Delta(0, "b", (2,)), LAST):
            stream.deliver(item)
        stream.deliver(StreamEnd())
        assert await read(stream) == [
            LAST._replace(text="ab!", token_ids=(1, 2, 9)),
            Delta(1, "x", (7,)),
        ]
        assert aborts == []

    asyncio.run(scenario())


def test_a_waiting_reader_is_woken() -> None:
    async def scenario() -> None:
        stream, _ = make_stream()
        reader = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        stream.deliver(LAST)
        stream.deliver(StreamEnd())
        assert await reader == [LAST]

    asyncio.run(scenario())


def test_an_error_comes_after_what_was_said_and_only_once() -> None:
    async def scenario() -> None:
        stream, _ = make_stream()
        stream.deliver(Delta(0, "a", (1,)))
        stream.deliver(StreamEnd(Internal("why")))
        assert await anext(stream) == Delta(0, "a", (1,))
        with pytest.raises(Internal, match="why"):
            await anext(stream)
        assert await read(stream) == []

    asyncio.run(scenario())


def test_streams_that_end_for_one_reason_raise_errors_of_their_own() -> None:
    async def scenario() -> None:
        error = ResourceExhausted("full", retry_after_s=5.0)
        caught = []
        for stream, _ in (make_stream(), make_stream()):
            stream.deliver(StreamEnd(error))
            with pytest.raises(ResourceExhausted, match="full") as raised:
                await anext(stream)
            caught.append(raised.value)
        assert caught[0] is not caught[1]
        assert error.__traceback__ is None
        assert [own.retry_after_s for own in caught] == [5.0, 5.0]

    asyncio.run(scenario())


def test_what_comes_after_the_end_is_dropped() -> None:
    async def scenario() -> None:
        stream, _ = make_stream()
        stream.deliver(StreamEnd())
        stream.deliver(LAST)
        stream.deliver(StreamEnd(Internal("late")))
        assert await read(stream) == []

    asyncio.run(scenario())


def test_closing_aborts_once_and_ends_the_reader() -> None:
    async def scenario() -> None:
        stream, aborts = make_stream()
        reader = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        await stream.aclose()
        await stream.aclose()
        assert await reader == []
        assert aborts == ["aborted"]

    asyncio.run(scenario())


def test_closing_after_the_end_aborts_nothing() -> None:
    async def scenario() -> None:
        stream, aborts = make_stream()
        async with stream:
            stream.deliver(StreamEnd())
        assert aborts == []

    asyncio.run(scenario())


def test_a_wait_may_be_given_up_and_taken_up_again() -> None:
    async def scenario() -> None:
        stream, aborts = make_stream()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), timeout=0.01)
        stream.deliver(LAST)
        assert await anext(stream) == LAST
        assert aborts == []

    asyncio.run(scenario())


def test_a_second_reader_is_refused() -> None:
    async def scenario() -> None:
        stream, _ = make_stream()
        reader = asyncio.create_task(read(stream))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one reader"):
            await anext(stream)
        await stream.aclose()
        await reader

    asyncio.run(scenario())
