"""A client that asks at a rate of its own, whether or not answers come: what overload is made of.

HTTP/1.1 over as many connections as it takes, one request on each at a time.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import cast

_MAX_CONNECTIONS = 4000
_LAST_ANSWERS_S = 5.0
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_STATUS = slice(9, 12)


@dataclass(slots=True)
class Answers:
    """How long answers of each status took, in seconds from when they were due."""

    latencies_s: dict[int, list[float]] = field(default_factory=dict)
    num_asked: int = 0
    num_lost: int = 0

    @property
    def num_answered(self) -> int:
        return sum(map(len, self.latencies_s.values()))

    def note(self, status: int, *, latency_s: float) -> None:
        self.latencies_s.setdefault(status, []).append(latency_s)


class _Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, client: "OpenLoopClient") -> None:
        self._client = client
        self._buffer = b""
        self._due_s: float | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self, request: bytes, *, due_s: float) -> None:
        self._due_s = due_s
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(_HEAD_END)
        if head_end < 0:
            return
        head = self._buffer[:head_end].lower()
        _, _, rest = head.partition(_LENGTH)
        if len(self._buffer) < head_end + len(_HEAD_END) + int(rest.split(b"\r\n")[0]):
            return
        assert self._due_s is not None
        latency_s = time.perf_counter() - self._due_s
        self._due_s, self._buffer = None, b""
        self._client.take(self, status=int(head[_STATUS]), latency_s=latency_s)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._due_s is not None:
            self._client.answers.num_lost += 1


class OpenLoopClient:
    """POSTs one body again and again."""

    def __init__(self, port: int, *, path: str, body: bytes) -> None:
        self._port = port
        self._request = (
            b"POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)
        )
        self._idle: list[_Connection] = []
        self._num_connections = 0
        self._crowd = 0
        self.answers = Answers()

    def take(self, connection: _Connection, *, status: int, latency_s: float) -> None:
        """An answer came."""
        self.answers.note(status, latency_s=latency_s)
        if self._crowd:
            self._ask(connection, due_s=time.perf_counter())
        else:
            self._idle.append(connection)

    async def ask_in_a_circle(self, num_in_flight: int, *, seconds: float) -> float:
        """Each answer is followed by a request; returns good answers per second."""
        self.answers = Answers()
        self._crowd = num_in_flight
        for _ in range(num_in_flight):
            self._ask(await self._connect(), due_s=time.perf_counter())
        # Those that came while others connected are not of the full circle.
        num_before, began_s = self._num_good(), time.perf_counter()
        await asyncio.sleep(seconds)
        rate = (self._num_good() - num_before) / (time.perf_counter() - began_s)
        self._crowd = 0
        await self._settle()
        return rate

    async def ask_at(self, rate: float, *, seconds: float) -> Answers:
        """Requests at random times, `rate` a second on average."""
        self.answers = Answers()
        chance = random.Random(1)  # noqa: S311 - times, not secrets
        due_s = time.perf_counter()
        end_s = due_s + seconds
        while due_s < end_s:
            due_s += chance.expovariate(rate)
            await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
            connection = self._idle.pop() if self._idle else await self._try_connect()
            if connection is None:
                self.answers.num_lost += 1
            else:
                self._ask(connection, due_s=due_s)
        await self._settle()
        return self.answers

    def _num_good(self) -> int:
        return len(self.answers.latencies_s.get(200, ()))

    def _ask(self, connection: _Connection, *, due_s: float) -> None:
        self.answers.num_asked += 1
        connection.ask(self._request, due_s=due_s)

    async def _settle(self) -> None:
        give_up_s = time.perf_counter() + _LAST_ANSWERS_S
        answers = self.answers
        while (
            answers.num_answered + answers.num_lost < answers.num_asked
            and time.perf_counter() < give_up_s
        ):
            await asyncio.sleep(0.01)

    async def _try_connect(self) -> _Connection | None:
        if self._num_connections >= _MAX_CONNECTIONS:
            return None
        try:
            return await self._connect()
        except OSError:
            return None

    async def _connect(self) -> _Connection:
        if self._idle:
            return self._idle.pop()
        self._num_connections += 1
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self), "127.0.0.1", self._port
        )
        return connection
