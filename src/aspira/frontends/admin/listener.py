"""A small HTTP/1.1 server for the admin port, every part of it bounded.

It runs on the loop that serves requests and must never be in their way: a connection carries one
request, and is cut when it is slow, large, or one too many. A request whose client leaves is
cancelled.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Protocol

import h11

from aspira.frontends.listeners.options import bind_port, cannot_listen
from aspira.frontends.rest.messages import HttpRequest, HttpResponse

_MAX_CONNECTIONS = 64
_MAX_HEAD_BYTES = 16 * 2**10
_MAX_BODY_BYTES = 4 * 2**20
_CHUNK_BYTES = 64 * 2**10
_READ_S = 10.0
# For an answer that takes longer than this to send, the client is gone or plays for time.
_WRITE_S = 60.0
_CLOSE_S = 10.0

_logger = logging.getLogger(__name__)


class HandleAdmin(Protocol):
    """Answers one request.

    `is_verified` is False for a client that showed no certificate where certificates are asked for.
    """

    def __call__(self, request: HttpRequest, *, is_verified: bool) -> Awaitable[HttpResponse]: ...


class AdminListener:
    """One port on the running loop. With `tls` it is encrypted.

    `max_connections` and `read_s`, in seconds, bound what clients can take.
    """

    def __init__(
        self,
        handle: HandleAdmin,
        *,
        tls: ssl.SSLContext | None = None,
        max_connections: int = _MAX_CONNECTIONS,
        read_s: float = _READ_S,
    ) -> None:
        self._handle = handle
        self._tls = tls
        self._max_connections = max_connections
        self._read_s = read_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, *, port: int) -> None:
        """Open the port.

        Raises:
            FailedPrecondition: it cannot be bound.
        """
        try:
            listening = bind_port(host, port=port)
        except (OSError, OverflowError) as error:
            raise cannot_listen(host, port=port, flags="--admin_port", error=error) from error
        self._server = await asyncio.start_server(
            self._serve,
            sock=listening,
            ssl=self._tls,
            ssl_handshake_timeout=self._read_s if self._tls else None,
        )

    async def stop(self) -> None:
        """Close the port, and cut what is still being answered."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._exchange(reader, writer=writer)
        except (OSError, TimeoutError):
            # The client is gone, or too slow to wait for.
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()
        except Exception:
            writer.transport.abort()
            _logger.exception("An admin connection met a bug")
        finally:
            self._connections.discard(task)

    async def _exchange(
        self, reader: asyncio.StreamReader, *, writer: asyncio.StreamWriter
    ) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        request, response = None, None
        try:
            async with asyncio.timeout(self._read_s):
                request = await _read_request(connection, reader=reader, writer=writer)
        except h11.RemoteProtocolError as error:
            response = _refusal(error.error_status_hint, text=str(error))
        except TimeoutError:
            response = _refusal(408, text="The request took too long to come")
        else:
            is_verified = _is_verified(writer, tls=self._tls)
            response = await self._answer(request, is_verified=is_verified, reader=reader)
        if response is not None:
            is_head = request is not None and request.method == "HEAD"
            writer.write(_encode_response(connection, response=response, is_head=is_head))
            async with asyncio.timeout(_WRITE_S):
                await writer.drain()
        async with asyncio.timeout(_CLOSE_S):
            writer.close()
            await writer.wait_closed()

    async def _answer(
        self, request: HttpRequest | None, *, is_verified: bool, reader: asyncio.StreamReader
    ) -> HttpResponse | None:
        """The answer; None if the client left before there was one."""
        if request is None:
            return None
        answering = asyncio.ensure_future(self._handle(request, is_verified=is_verified))
        # Nothing may follow the request: whatever can be read now is the end.
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
        except Exception:
            _logger.exception("An admin request met a bug: %s %s", request.method, request.target)
            return _refusal(500, text="The server met a bug; its log has the details")
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
        return None


async def _read_request(
    connection: h11.Connection, *, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> HttpRequest | None:
    """The request with its whole body; None if the client left without one.

    Raises:
        h11.RemoteProtocolError: it is none, or too large.
    """
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        match event:
            case h11.Request():
                head = event
            case h11.Data():
                body += event.data
                if len(body) > _MAX_BODY_BYTES:
                    text = f"The request body is larger than the limit of {_MAX_BODY_BYTES} bytes"
                    raise h11.RemoteProtocolError(text, error_status_hint=413)
            case h11.EndOfMessage():
                assert head is not None
                return _make_request(head, body=bytes(body))
            case h11.ConnectionClosed():
                return None
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                go_on = connection.send(h11.InformationalResponse(status_code=100, headers=[]))
                writer.write(go_on or b"")
            connection.receive_data(await reader.read(_CHUNK_BYTES))


def _make_request(head: h11.Request, *, body: bytes) -> HttpRequest:
    path, _, query = head.target.decode("latin-1").partition("?")
    headers = [(bytes(name), bytes(value)) for name, value in head.headers]
    return HttpRequest(head.method.decode(), path, query, headers, body, deadline=None)


def _is_verified(writer: asyncio.StreamWriter, *, tls: ssl.SSLContext | None) -> bool:
    """Whether the client showed a certificate, or need not."""
    if tls is None or tls.verify_mode is ssl.CERT_NONE:
        return True
    return bool(writer.get_extra_info("peercert"))


def _encode_response(connection: h11.Connection, *, response: HttpResponse, is_head: bool) -> bytes:
    head = h11.Response(
        status_code=response.status,
        headers=[
            ("content-type", response.content_type),
            ("content-length", str(len(response.body))),
            ("connection", "close"),
            *response.headers.items(),
        ],
        reason=_reason(response.status),
    )
    events: list[h11.Event] = [head]
    if response.body and not is_head:
        events.append(h11.Data(data=response.body))
    events.append(h11.EndOfMessage())
    return b"".join(connection.send(event) or b"" for event in events)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _refusal(status: int, *, text: str) -> HttpResponse:
    return HttpResponse(status, f"{text}\n".encode(), content_type="text/plain")
