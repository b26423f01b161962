"""Reads several token streams as one, and notices when nothing comes for a while."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from aspira.contracts.generation import Delta
from aspira.llm.streams import TokenStream


class Arrival(NamedTuple):
    """A delta of one of the streams."""

    stream: int
    delta: Delta


Arrivals = AsyncGenerator[Arrival | None, None]


def read_streams(streams: Sequence[TokenStream], *, idle_s: float) -> Arrivals:
    """Deltas as they come; None after each `idle_s` without any, never if that is 0 or less. To be
    closed by the reader.

    Iterating raises:
        ServingError: one of the streams ended with it.
    """
    limit_s = idle_s if idle_s > 0 else None
    if len(streams) == 1:
        return _read_one(streams[0], limit_s=limit_s)
    return _read_many(streams, limit_s=limit_s)


async def _read_many(streams: Sequence[TokenStream], *, limit_s: float | None) -> Arrivals:
    waiting = {_next_of(stream): index for index, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(
                waiting, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                yield None
            for task in done:
                index = waiting.pop(task)
                delta = task.result()
                if delta is not None:
                    waiting[_next_of(streams[index])] = index
                    yield Arrival(index, delta)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _read_one(stream: TokenStream, *, limit_s: float | None) -> Arrivals:
    while True:
        try:
            # Cancelling this wait loses nothing.
            async with asyncio.timeout(limit_s):
                delta = await anext(stream)
        except TimeoutError:
            yield None
        except StopAsyncIteration:
            return
        else:
            yield Arrival(0, delta)


def _next_of(stream: TokenStream) -> "asyncio.Task[Delta | None]":
    return asyncio.get_running_loop().create_task(_next_or_none(stream))


async def _next_or_none(stream: TokenStream) -> Delta | None:
    # A task cannot end with StopAsyncIteration.
    return await anext(stream, None)
