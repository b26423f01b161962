import asyncio
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.errors import FailedPrecondition
from aspira.frontends.admin.listener import AdminListener
from aspira.frontends.listeners.options import bind_port
from aspira.frontends.listeners.tls import Tls, make_ssl_context
from aspira.frontends.rest.messages import HttpRequest, HttpResponse
from certificates import make_certificate

HOST = "127.0.0.1"
PATIENCE_S = 30


class Echo:
    """Tells of each request what came; `held` requests are not answered until let go."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.requests: list[HttpRequest] = []
        self.verified: list[bool] = []
        self.arrived = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = asyncio.Event()
        if not is_held:
            self.let_go.set()

    async def handle(self, request: HttpRequest, *, is_verified: bool) -> HttpResponse:
        self.requests.append(request)
        self.verified.append(is_verified)
        self.arrived.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return HttpResponse(200, b"{}", headers={"extra": "1"})


async def handle_with_a_bug(request: HttpRequest, *, is_verified: bool) -> HttpResponse:
    raise RuntimeError("inner workings")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


async def send(
    port: int, *pieces: bytes, tls: ssl.SSLContext | None = None, is_ended: bool = False
) -> bytes:
    """What a connection gets back until the server closes it, or we say that we have ended."""
    name = "localhost" if tls else None
    reader, writer = await asyncio.open_connection(HOST, port, ssl=tls, server_hostname=name)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if is_ended:
            writer.write_eof()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def play(scenario: Callable[[int], Awaitable[None]], *, handle: Any = None, **options: Any) -> None:
    """With a listener on a port."""

    async def act() -> None:
        listener = AdminListener(handle or Echo().handle, **options)
        port = free_port()
        await listener.start(HOST, port=port)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await scenario(port)
        finally:
            await listener.stop()

    asyncio.run(act())


def ask_once(*pieces: bytes, **options: Any) -> bytes:
    """The answer to one connection's bytes."""
    answers: list[bytes] = []

    async def scenario(port: int) -> None:
        answers.append(await send(port, *pieces))

    play(scenario, **options)
    return answers[0]


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_a_request_arrives_and_its_answer_leaves() -> None:
    echo = Echo()
    answer = ask_once(
        b"POST /v1/a%20b?c=d HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nAccept: y\r\n\r\n",
        b"hello",
        handle=echo.handle,
    )
    assert answer == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
        b"connection: close\r\nextra: 1\r\n\r\n{}"
    )
    (request,) = echo.requests
    assert (request.method, request.path, request.query) == ("POST", "/v1/a%20b", "c=d")
    assert request.body == b"hello"
    assert request.header(b"accept") == "y"
    assert echo.verified == [True]


def test_a_head_request_gets_no_body() -> None:
    answer = ask_once(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 2\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_client_that_waits_before_its_body_is_told_to_go_on() -> None:
    echo = Echo()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"

    async def scenario(port: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"ab")
        assert status_of(await reader.read()) == 200
        writer.close()

    play(scenario, handle=echo.handle)
    assert echo.requests[0].body == b"ab"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 5000, 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 4194305, 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: what\r\n\r\n", 501),
    ],
    ids=["no HTTP", "no host", "long head", "long body", "unknown encoding"],
)
def test_what_cannot_be_taken_is_refused(sent: bytes, status: int) -> None:
    echo = Echo()
    answer = ask_once(sent, handle=echo.handle)
    # A client that is still sending may lose the answer with the connection.
    is_long = len(sent) > 2**16
    assert status_of(answer) == status if answer or not is_long else is_long
    assert echo.requests == []


def test_a_request_that_takes_too_long_to_come_is_refused() -> None:
    answer = ask_once(b"GET / HTTP/1.1\r\nHo", read_s=0.01)
    assert status_of(answer) == 408


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def scenario(port: int) -> None:
        _, writer = await asyncio.open_connection(HOST, port)
        writer.close()
        assert status_of(await send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")) == 200

    play(scenario)


def test_one_connection_too_many_is_cut_and_the_others_are_answered() -> None:
    async def run() -> None:
        echo = Echo(is_held=True)
        listener = AdminListener(echo.handle, max_connections=1)
        port = free_port()
        await listener.start(HOST, port=port)
        request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        first = asyncio.create_task(send(port, request))
        await echo.arrived.wait()
        assert await send(port, request) == b""
        echo.let_go.set()
        assert status_of(await first) == 200
        assert status_of(await send(port, request)) == 200
        await listener.stop()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_the_work_for_a_client_that_leaves_is_cancelled() -> None:
    async def run() -> None:
        echo = Echo(is_held=True)
        listener = AdminListener(echo.handle)
        port = free_port()
        await listener.start(HOST, port=port)
        _, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await echo.arrived.wait()
        writer.close()
        await echo.cancelled.wait()
        await listener.stop()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_a_stop_cuts_what_is_being_answered_and_closes_the_port() -> None:
    async def run() -> None:
        echo = Echo(is_held=True)
        listener = AdminListener(echo.handle)
        port = free_port()
        await listener.start(HOST, port=port)
        asked = asyncio.create_task(send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        await echo.arrived.wait()
        await listener.stop()
        assert await asked == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, port)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def test_a_bug_is_an_answer_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    answer = ask_once(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", handle=handle_with_a_bug)
    assert status_of(answer) == 500
    assert b"inner workings" not in answer
    assert "An admin request met a bug: GET /x" in caplog.text


def test_a_port_that_is_taken_is_a_plain_error() -> None:
    async def run() -> None:
        port = free_port()
        with bind_port(HOST, port=port), pytest.raises(FailedPrecondition) as caught:
            await AdminListener(Echo().handle).start(HOST, port=port)
        assert f"Cannot listen on {HOST} port {port}" in caught.value.message
        assert caught.value.message.endswith("Choose another with --admin_port")

    asyncio.run(run())


@pytest.mark.parametrize("has_certificate", [True, False])
def test_who_shows_a_certificate_is_told_from_who_does_not(
    tmp_path: Path, has_certificate: bool
) -> None:
    authority = make_certificate(tmp_path, name="authority")
    server = make_certificate(tmp_path, name="server", issuer=authority)
    client = make_certificate(tmp_path, name="client", issuer=authority)
    context = make_ssl_context(
        Tls(server.key, server.cert, authority.cert), is_certificate_optional=True
    )
    echo = Echo()
    asking = ssl.create_default_context(cafile=str(authority.cert_file))
    if has_certificate:
        asking.load_cert_chain(client.cert_file, client.key_file)

    async def scenario(port: int) -> None:
        answer = await send(port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", tls=asking)
        assert status_of(answer) == 200

    play(scenario, handle=echo.handle, tls=context)
    assert echo.verified == [has_certificate]


def test_a_client_that_sends_no_tls_to_an_encrypted_port_gets_nothing(tmp_path: Path) -> None:
    server = make_certificate(tmp_path, name="server")
    context = make_ssl_context(Tls(server.key, server.cert))
    echo = Echo()
    answer = ask_once(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", handle=echo.handle, tls=context)
    assert not answer.startswith(b"HTTP")
    assert echo.requests == []


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_no_harm(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    noise = random.Random(seed)
    request = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"

    async def scenario(port: int) -> None:
        for _ in range(20):
            damaged = bytearray(request)
            for _ in range(noise.randint(1, 8)):
                damaged[noise.randrange(len(damaged))] = noise.randrange(256)
            sent = bytes(damaged[: noise.randint(1, len(damaged))])
            answer = await send(port, sent, is_ended=True)
            assert answer == b"" or status_of(answer) in {200, 400, 408, 413, 501, 505}
        assert status_of(await send(port, request)) == 200

    play(scenario)
    assert caplog.text == ""
