"""Carries the REST handler over ASGI: reads and inflates bodies, adds CORS headers, answers."""

import zlib
from functools import partial

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Cancelled, ServingError
from aspira.frontends.asgi import MAX_INFLATED_BYTES, Receive, Scope, Send, read_body
from aspira.frontends.departures import DepartureWatch
from aspira.frontends.offload import on_thread
from aspira.frontends.priority import PRIORITY_HEADER, parse_priority
from aspira.frontends.rest.handler import RestHandler
from aspira.frontends.rest.messages import Headers, HttpRequest, HttpResponse, error_response
from aspira.frontends.rest.options import RestOptions
from aspira.frontends.rest.routes import is_api_path
from aspira.service.drain import RequestGate

_MAX_BODY_BYTES = 2**31 - 1
_GZIP_WINDOW_BITS = 31

_CORS_HEADERS = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
)


class RestApplication:
    """An ASGI application for everything that is not gRPC."""

    def __init__(
        self, handler: RestHandler, *, gate: RequestGate, clock: Clock, options: RestOptions
    ) -> None:
        self._handler = handler
        self._gate = gate
        self._clock = clock
        self._options = options
        self._departures = DepartureWatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_of(scope)
        try:
            if is_api_path(path) and scope["method"] == "POST":
                with self._gate:
                    await self._answer(scope, path=path, receive=receive, send=send)
            else:
                await self._answer(scope, path=path, receive=receive, send=send)
        except Cancelled:
            return
        except ServingError as error:
            await self._send(send, response=error_response(error), scope=scope)

    async def _answer(self, scope: Scope, *, path: str, receive: Receive, send: Send) -> None:
        timeout_s = self._options.timeout_s
        body, priority = await _read_request(receive, headers=scope["headers"])
        request = HttpRequest(
            method=scope["method"],
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=scope["headers"],
            body=body,
            deadline=self._clock.now() + timeout_s if timeout_s > 0 else None,
            priority=priority,
        )
        waiting = self._departures.add(receive)
        try:
            response = await self._handler.handle(request)
        finally:
            self._departures.remove(waiting)
        await self._send(send, response=response, scope=scope)

    async def _send(self, send: Send, *, response: HttpResponse, scope: Scope) -> None:
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", b"%d" % len(response.body)),
        ]
        if response.headers:
            headers += [(name.encode(), value.encode()) for name, value in response.headers.items()]
        if self._options.is_cors_enabled and is_api_path(_path_of(scope)):
            headers += _CORS_HEADERS
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        # A body would be taken for the begin of the next answer.
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})


def _path_of(scope: Scope) -> str:
    # Clients percent-encode what is not ASCII, or send it as UTF-8.
    path: str = scope["raw_path"].decode("utf-8", "replace")
    return path


async def _read_request(receive: Receive, *, headers: Headers) -> tuple[bytes, int]:
    """The body, inflated, and the priority."""
    content_length, is_gzip, priority = None, False, 0
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            content_length = int(value)
        elif name == b"content-encoding":
            is_gzip = b"gzip" in value
        elif name == PRIORITY_HEADER:
            priority = parse_priority(value)
    body = await read_body(receive, max_bytes=_MAX_BODY_BYTES, content_length=content_length)
    if is_gzip:
        # Inflating releases the interpreter's lock, so on a thread it delays nobody.
        body = await on_thread(partial(inflate_body, body))
    return body, priority


def inflate_body(body: bytes) -> bytes:
    """A gzip body inflated; empty, as in the reference, if it is damaged, cut or too large."""
    inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        inflated = inflater.decompress(body, MAX_INFLATED_BYTES + 1)
    except zlib.error:
        return b""
    if len(inflated) > MAX_INFLATED_BYTES or not inflater.eof:
        return b""
    return inflated
