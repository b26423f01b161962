"""Carries the REST handler over ASGI: reads and inflates bodies, adds CORS headers, answers."""

import zlib
from functools import partial

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Cancelled, ServingError
from aspira.frontends.asgi import (
    MAX_INFLATED_BYTES,
    Receive,
    Scope,
    Send,
    read_body,
    without_bodies,
)
from aspira.frontends.departures import DepartureWatch
from aspira.frontends.offload import on_thread
from aspira.frontends.priority import PRIORITY_HEADER, parse_priority
from aspira.frontends.rest.handler import RestHandler
from aspira.frontends.rest.messages import (
    JSON,
    Headers,
    HttpRequest,
    HttpResponse,
    error_response,
)
from aspira.frontends.rest.options import RestOptions
from aspira.frontends.rest.routes import is_api_path
from aspira.service.drain import RequestGate

_MAX_BODY_BYTES = 2**31 - 1
_GZIP_WINDOW_BITS = 31

# One object for nearly every answer, and found by identity.
_JSON_HEADER = (b"content-type", JSON.encode())
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
        is_api = is_api_path(path)
        if scope["method"] == "HEAD":
            send = without_bodies(send)
        try:
            if is_api and scope["method"] == "POST":
                with self._gate:
                    response = await self._answer(scope, path=path, receive=receive)
                    await self._send(send, response=response, is_api=True)
            else:
                response = await self._answer(scope, path=path, receive=receive)
                await self._send(send, response=response, is_api=is_api)
        except Cancelled:
            return
        except ServingError as error:
            await self._send(send, response=error_response(error), is_api=is_api)

    async def _answer(self, scope: Scope, *, path: str, receive: Receive) -> HttpResponse:
        timeout_s = self._options.timeout_s
        headers = scope["headers"]
        body, priority = await _read_request(receive, headers=headers)
        query = scope["query_string"]
        request = HttpRequest(
            scope["method"],
            path,
            query.decode("latin-1") if query else "",
            headers,
            body,
            self._clock.now() + timeout_s if timeout_s > 0 else None,
            priority,
        )
        waiting = self._departures.add(receive)
        try:
            return await self._handler.handle(request)
        finally:
            self._departures.remove(waiting)

    async def _send(self, send: Send, *, response: HttpResponse, is_api: bool) -> None:
        status, body, content_type, more = response
        headers = [
            _JSON_HEADER if content_type is JSON else (b"content-type", content_type.encode()),
            (b"content-length", b"%d" % len(body)),
        ]
        if more:
            headers += [(name.encode(), value.encode()) for name, value in more.items()]
        if is_api and self._options.is_cors_enabled:
            headers += _CORS_HEADERS
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _path_of(scope: Scope) -> str:
    # Clients percent-encode what is not ASCII, or send it as UTF-8.
    path: str = scope["raw_path"].decode("utf-8", "replace")
    return path


async def _read_request(receive: Receive, *, headers: Headers) -> tuple[bytes, int]:
    """The body, inflated, and the priority."""
    by_name = dict(headers)
    content_length = by_name.get(b"content-length", b"")
    body = await read_body(
        receive,
        max_bytes=_MAX_BODY_BYTES,
        content_length=int(content_length) if content_length.isdigit() else None,
    )
    if b"gzip" in by_name.get(b"content-encoding", b""):
        # Inflating releases the interpreter's lock, so on a thread it delays nobody.
        body = await on_thread(partial(inflate_body, body))
    priority = by_name.get(PRIORITY_HEADER)
    return body, 0 if priority is None else parse_priority(priority)


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
