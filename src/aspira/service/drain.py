"""Counts requests in flight, so that a server can stop without losing one."""

import asyncio
from types import TracebackType
from typing import Self

from aspira.contracts.errors import Unavailable


class RequestGate:
    """Open while serving; once closed, new requests are refused and those inside may finish.

    A frontend holds it (`with gate:`) from a request's arrival until its answer has been handed
    to the listener. Event loop only.
    """

    def __init__(self) -> None:
        self._is_open = True
        self._num_inside = 0
        self._emptied = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._is_open

    def __enter__(self) -> Self:
        """Let one request in.

        Raises:
            Unavailable: the server is shutting down; another replica may answer.
        """
        if not self._is_open:
            raise Unavailable("The server is shutting down; retry at another replica")
        self._num_inside += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._num_inside -= 1
        if self._num_inside == 0 and not self._is_open:
            self._emptied.set()

    def close(self) -> None:
        """Refuse new requests from now on."""
        self._is_open = False
        if self._num_inside == 0:
            self._emptied.set()

    async def wait_empty(self) -> None:
        """After `close`: until the requests inside have ended."""
        await self._emptied.wait()
