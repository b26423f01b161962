"""Brings items from the engine's thread to the streams of one event loop: one wake-up a step.

Waking a loop costs a system call, so the engine posts what all streams get in a step, then wakes.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from aspira.contracts.errors import ServingError
from aspira.llm.streams import Item, StreamEnd, TokenStream

FindProblem = Callable[[], ServingError | None]


class HubOutlet(NamedTuple):
    """One stream, as the engine sees it."""

    hub: "StreamHub"
    stream: TokenStream

    @property
    def is_gone(self) -> bool:
        return self.hub.is_gone

    def send(self, item: Item) -> None:
        self.hub.post(self.stream, item=item)


class StreamHub:
    """The streams of one loop that have not ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[TokenStream, Item]] = deque()
        self._is_waking = False
        self._streams: set[TokenStream] = set()
        self._is_watching = False

    @property
    def is_gone(self) -> bool:
        """Whether the loop has closed."""
        return self._loop.is_closed()

    def add(self, stream: TokenStream) -> HubOutlet:
        """Take a stream in. On the loop."""
        self._streams.add(stream)
        return HubOutlet(self, stream)

    def discard(self, stream: TokenStream) -> None:
        """Its consumer went away. On the loop."""
        self._streams.discard(stream)

    def post(self, stream: TokenStream, *, item: Item) -> None:
        """Queue an item, to be delivered after the next `wake`. On the engine's thread."""
        self._posted.append((stream, item))

    def wake(self) -> None:
        """Have what was posted delivered. On the engine's thread."""
        if self._posted and not self._is_waking:
            self._is_waking = True
            self.call(self._deliver)

    def call(self, function: Callable[[], None]) -> None:
        """Have `function` called on the loop. A loop that has closed has nobody left to tell."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def fail_all(self, error: ServingError) -> None:
        """End every stream now, whatever the engine does. On the loop."""
        self._deliver()
        for stream in tuple(self._streams):
            stream.fail(error)
        self._streams.clear()

    def watch(self, find_problem: FindProblem, *, every_s: float) -> None:
        """While there are streams, ask now and then whether they must fail. On the loop."""
        if not self._is_watching:
            self._is_watching = True
            latest = self._loop.time() + 2 * every_s
            look = partial(self._look, find_problem, every_s=every_s, latest=latest)
            self._loop.call_later(every_s, look)

    def _look(self, find_problem: FindProblem, *, every_s: float, latest: float) -> None:
        self._is_watching = False
        # A look that comes late tells of a process that was held up as a whole: the engine too
        # gets time to go on.
        problem = find_problem() if self._loop.time() < latest else None
        if problem is not None:
            self.fail_all(problem)
        if self._streams:
            self.watch(find_problem, every_s=every_s)

    def _deliver(self) -> None:
        # The engine posts before it looks at this flag: it wakes once too often rather than never.
        self._is_waking = False
        while self._posted:
            stream, item = self._posted.popleft()
            stream.deliver(item)
            if isinstance(item, StreamEnd):
                self._streams.discard(stream)
