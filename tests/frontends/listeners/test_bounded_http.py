"""The portable listener keeps no more of a request than it needs to refuse it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from aspira.contracts.clock import SystemClock
from aspira.frontends.asgi import Receive, Scope, Send, read_body
from aspira.frontends.listeners import bounded_http
from aspira.frontends.listeners.bounded_http import MAX_HEAD_BYTES
from aspira.frontends.listeners.options import ListenerOptions
from aspira.frontends.listeners.portable import PortableListener
from aspira.service.drain import RequestGate
from system.server_process import free_ports

Answer = TypeVar("Answer")

_POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
_MOST_BYTES = 64 * MAX_HEAD_BYTES


async def _count_bytes(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body."""
    body = await read_body(receive, max_bytes=_MOST_BYTES, content_length=None)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % len(body)})


@asynccontextmanager
async def _open_port() -> AsyncIterator[int]:
    grpc_port, rest_port = free_ports(2)
    listener = PortableListener(
        ListenerOptions(host="127.0.0.1", grpc_port=grpc_port, rest_port=rest_port),
        methods={},
        rest=_count_bytes,
        gate=RequestGate(),
        clock=SystemClock(),
    )
    await listener.start()
    try:
        yield rest_port
    finally:
        await listener.stop()


def _with_port(ask: Callable[[int], Awaitable[Answer]]) -> Answer:
    async def run() -> Answer:
        async with _open_port() as port:
            return await ask(port)

    return asyncio.run(run())


async def _answer(port: int, *, begin: bytes, piece: bytes) -> bytes:
    """What comes after `begin` and as many pieces as the server takes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = asyncio.create_task(reader.read())
    writer.write(begin)
    num_bytes = 0
    while not answer.done() and num_bytes < _MOST_BYTES:
        try:
            writer.write(piece)
            await writer.drain()
        except ConnectionError:
            break
        num_bytes += len(piece)
        await asyncio.sleep(0)
    try:
        return await answer
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /", b"a" * 1024),
        (_POST + b"X-A: ", b"a" * 1024),
        (_POST, b"X-A: a\r\n" * 128),
        (_POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"X-A: a\r\n" * 128),
    ],
    ids=["path", "header", "headers", "trailers"],
)
def test_what_has_no_end_is_refused(begin: bytes, piece: bytes) -> None:
    async def ask(port: int) -> tuple[bytes, bytes]:
        return await _answer(port, begin=begin, piece=piece), await _post(port, body=b"abc")

    refusal, answer_to_others = _with_port(ask)
    # Whoever still sends when the connection closes may lose the answer.
    assert refusal == b"" or refusal.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert answer_to_others.endswith(b"\r\n3\r\n0\r\n\r\n")


def test_a_body_may_be_larger() -> None:
    body = b"a" * (2 * MAX_HEAD_BYTES)
    answer = _with_port(lambda port: _post(port, body=body))
    assert b"%d" % len(body) in answer


def test_many_requests_are_no_large_one() -> None:
    async def ask(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        num_answers = 0
        for _ in range(20):
            writer.write(_POST + b"X-A: " + b"a" * (MAX_HEAD_BYTES // 8) + b"\r\n\r\n")
            await reader.readuntil(b"\r\n0\r\n\r\n")
            num_answers += 1
        writer.close()
        return num_answers

    assert _with_port(ask) == 20


async def _post(port: int, *, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "max_connections", lambda: 1)

    async def ask(port: int) -> tuple[bytes, bytes]:
        first_reader, first_writer = await asyncio.open_connection("127.0.0.1", port)
        first_writer.write(_POST + b"\r\n")
        first = await first_reader.readuntil(b"\r\n\r\n")
        second_reader, second_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            second = await second_reader.read()
        except ConnectionError:
            second = b""
        first_writer.close()
        second_writer.close()
        return first, second

    first, second = _with_port(ask)
    assert first.startswith(b"HTTP/1.1 200")
    assert second == b""
