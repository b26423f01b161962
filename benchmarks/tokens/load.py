"""Puts a load of streamed requests on a server, in a process of its own.

    python load.py < load.json > timelines.json

While the load is on, only the time and the bytes of each read are kept: it shares the CPUs with the
server. What they mean is found out afterwards.
"""

import asyncio
import json
import resource
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from tokens.events import Piece, read_timeline
from tokens.timelines import Timeline

_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Load:
    """Requests and when they are made."""

    port: int
    path: str
    bodies: tuple[dict[str, Any], ...]

    num_clients: int = 0
    """Each asks again as soon as it is answered; 0 has requests come at `arrivals`."""

    arrivals: tuple[float, ...] = ()
    """Seconds from the beginning, one for each body."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What came back, in the order of the bodies."""

    timelines: tuple[Timeline, ...]
    cpu_s: float
    """Of the load generator while the load was on."""


def encode_load(load: Load) -> str:
    return json.dumps(asdict(load))


def decode_load(text: str) -> Load:
    fields = json.loads(text)
    lists = {name: tuple(fields[name]) for name in ("bodies", "arrivals")}
    return Load(**{**fields, **lists})


def encode_result(result: LoadResult) -> str:
    return json.dumps({"timelines": result.timelines, "cpu_s": result.cpu_s})


def decode_result(text: str) -> LoadResult:
    fields = json.loads(text)
    timelines = tuple(
        Timeline(asked_at, tuple(texts_at), *rest)
        for asked_at, texts_at, *rest in fields["timelines"]
    )
    return LoadResult(timelines, fields["cpu_s"])


class _Answer(asyncio.Protocol):
    """One connection, for one request."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.pieces: list[Piece] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append(Piece(perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        if not self.ended.done():
            self.ended.set_result(None)


async def _ask(request: bytes, *, port: int) -> tuple[float, list[Piece], str]:
    asked_at = perf_counter()
    loop = asyncio.get_running_loop()
    try:
        transport, answer = await loop.create_connection(
            lambda: _Answer(request), "127.0.0.1", port
        )
    except OSError as error:
        return asked_at, [], f"no connection: {error}"
    try:
        async with asyncio.timeout(_LIMIT_S):
            await answer.ended
    except TimeoutError:
        return asked_at, answer.pieces, f"no end after {_LIMIT_S} s"
    finally:
        transport.abort()
    return asked_at, answer.pieces, ""


async def apply(load: Load) -> LoadResult:
    """Make all requests, and return when all are answered."""
    requests = [_encode(body, load=load) for body in load.bodies]
    answers: dict[int, tuple[float, list[Piece], str]] = {}

    async def ask(index: int) -> None:
        answers[index] = await _ask(requests[index], port=load.port)

    async def be_client(turns: Iterator[int]) -> None:
        for index in turns:
            await ask(index)

    async def ask_later(index: int, *, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        await ask(index)

    began_cpu_s = _cpu_s()
    if load.num_clients:
        turns = iter(range(len(requests)))
        await asyncio.gather(*(be_client(turns) for _ in range(load.num_clients)))
    else:
        later = enumerate(load.arrivals)
        await asyncio.gather(*(ask_later(index, delay_s=at) for index, at in later))
    cpu_s = _cpu_s() - began_cpu_s
    return LoadResult(tuple(_timeline(*answers[index]) for index in range(len(requests))), cpu_s)


def _timeline(asked_at: float, pieces: list[Piece], error: str) -> Timeline:
    timeline = read_timeline(asked_at, pieces=pieces)
    return timeline._replace(error=error) if error else timeline


def _encode(body: dict[str, Any], *, load: Load) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {load.path} HTTP/1.1\r\nHost: 127.0.0.1:{load.port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _cpu_s() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


if __name__ == "__main__":
    print(encode_result(asyncio.run(apply(decode_load(sys.stdin.read())))))
