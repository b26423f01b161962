"""The consumer's side of a generation: deltas, and exactly one end."""

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from aspira.contracts.errors import ServingError
from aspira.contracts.generation import Delta


class StreamEnd(NamedTuple):
    """The last thing in a stream. `error` is None after the last finish reason."""

    error: ServingError | None = None


Item = Delta | StreamEnd


class StreamOutlet(Protocol):
    """The engine's side of a stream."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody can be reached by it any more."""
        ...

    def send(self, item: Item) -> None:
        """Bring an item to the stream, in order."""
        ...


class TokenStream:
    """Read on one event loop, by one reader. Closing it before its end aborts the request.

    A reader that is slow finds one larger delta instead of many: it can neither hold up the engine
    nor make a buffer grow beyond the text itself. Cancelling a wait for the next delta loses
    nothing, so a reader can wait with a time limit, say that it is still there, and wait again.
    """

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._pending: dict[int, list[Delta]] = {}  # by choice
        self._end: StreamEnd | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come, besides what is pending."""
        return self._end is not None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        """The next delta.

        Raises:
            ServingError: why the stream ended without its last finish reason. Raised once.
            RuntimeError: two tasks read one stream.
        """
        while not self._pending and self._end is None:
            await self._wait()
        if self._pending:
            return join_deltas(self._pending.pop(next(iter(self._pending))))
        end, self._end = self._end, StreamEnd()
        if end is not None and end.error is not None:
            # One error may end many streams; each raises its own, with its own traceback.
            raise copy(end.error)
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Take nothing more. Aborts the request if it goes on; does nothing if it has ended."""
        self._pending.clear()
        if self._end is None:
            self.fail(None)
        self._end = StreamEnd()

    def fail(self, error: ServingError | None) -> None:
        """End it now, and have the engine give up the request. On the loop."""
        self.deliver(StreamEnd(error))
        self._abort()

    def deliver(self, item: Item) -> None:
        """Take an item, on the loop. What comes after the end is dropped."""
        if self._end is not None:
            return
        if isinstance(item, StreamEnd):
            self._end = item
        else:
            self._pending.setdefault(item.choice, []).append(item)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("A token stream has one reader")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


def join_deltas(deltas: Sequence[Delta]) -> Delta:
    """Consecutive deltas of one choice as one."""
    if len(deltas) == 1:
        return deltas[0]
    return deltas[-1]._replace(
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
        logprobs=tuple(logprob for delta in deltas for logprob in delta.logprobs),
    )
