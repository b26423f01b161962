"""Carries gRPC methods over ASGI with HTTP/2 trailers, for listeners that speak only HTTP."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any

from aspira.contracts.clock import Clock
from aspira.contracts.errors import (
    Cancelled,
    Internal,
    ResourceExhausted,
    ServingError,
    Unimplemented,
    shorten,
)
from aspira.frontends.asgi import MAX_INFLATED_BYTES, Receive, Scope, Send, read_body
from aspira.frontends.departures import DepartureWatch
from aspira.frontends.grpc.framing import (
    PREFIX_BYTES,
    CallHeaders,
    decode_only_message,
    encode_message,
    inflate,
    message_length,
    parse_headers,
    status_headers,
)
from aspira.frontends.grpc.methods import (
    MAX_MESSAGE_BYTES,
    Message,
    Methods,
    StreamMethod,
    UnaryMethod,
    call_stream,
    call_unary,
    read_message,
)
from aspira.frontends.offload import on_thread
from aspira.frontends.origin import TEXT, set_origin
from aspira.service.drain import RequestGate

_CONTENT_TYPE = (b"content-type", b"application/grpc")
# Once a request body has ended, some servers tell of a client that left only when asked.
_DISCONNECT_POLL_S = 0.25
_NOT_COMPRESSED = b"\0"


class GrpcApplication:
    """An ASGI application that answers every path as a gRPC call."""

    def __init__(self, methods: Methods, *, gate: RequestGate, clock: Clock) -> None:
        self._methods = methods
        self._gate = gate
        self._clock = clock
        self._departures = DepartureWatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = parse_headers(scope["headers"])
            if headers.is_traced:
                set_origin(scope["headers"], operation=TEXT)
            method = self._methods.get(scope["path"])
            if isinstance(method, UnaryMethod):
                with nullcontext() if method.is_question else self._gate:
                    payload = await self._answer_unary(method, headers=headers, receive=receive)
                    await _send_message(send, payload=payload)
            elif method is not None:
                await self._answer_stream(method, headers=headers, receive=receive, send=send)
            else:
                raise Unimplemented(f"Method not found: {shorten(scope['path'])}")
        except ServingError as error:
            await _send_error(send, error=error)

    async def _answer_unary(
        self, method: UnaryMethod, *, headers: CallHeaders, receive: Receive
    ) -> bytes:
        deadline = None
        if headers.timeout_s is not None:
            deadline = self._clock.now() + headers.timeout_s
        body = await read_body(
            receive,
            max_bytes=MAX_MESSAGE_BYTES + PREFIX_BYTES,
            content_length=headers.content_length,
        )
        encoding = headers.encoding
        if body[:1] <= _NOT_COMPRESSED:
            payload = decode_only_message(body, encoding=encoding, max_bytes=MAX_INFLATED_BYTES)
        else:
            payload = await _inflate_on_thread(body, encoding=encoding)
        del body
        call = partial(
            call_unary, method, payload=payload, deadline=deadline, priority=headers.priority
        )
        if not method.can_be_dropped:
            return await call()
        waiting = self._departures.add(receive)
        try:
            return await call()
        finally:
            self._departures.remove(waiting)

    async def _answer_stream(
        self, method: StreamMethod, *, headers: CallHeaders, receive: Receive, send: Send
    ) -> None:
        requests = _StreamRequests(method, headers=headers, receive=receive)
        answering = asyncio.ensure_future(_send_stream(method, requests=requests, send=send))
        watching = asyncio.ensure_future(requests.wait_for_disconnect())
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, watching):
                task.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)
        if not answering.cancelled() and (error := answering.exception()) is not None:
            raise error


class _StreamRequests:
    """The messages of a streaming request as they arrive."""

    def __init__(self, method: StreamMethod, *, headers: CallHeaders, receive: Receive) -> None:
        self._method = method
        self._max_bytes = method.max_message_bytes
        self._encoding = headers.encoding
        self._receive = receive
        self._ended = asyncio.Event()

    async def messages(self) -> AsyncIterator[Message]:
        buffer = bytearray()
        is_more = True
        while is_more:
            event = await self._ask()
            if event["type"] != "http.request":
                raise Cancelled("The client went away")
            buffer += event.get("body", b"")
            is_more = bool(event.get("more_body"))
            if not is_more:
                self._ended.set()
            start = 0
            while (end := _frame_end(buffer, start=start, max_bytes=self._max_bytes)) is not None:
                yield await self._parse(bytes(buffer[start:end]))
                start = end
            del buffer[:start]
        if buffer:
            raise Internal("The request stream ended within a message")

    async def wait_for_disconnect(self) -> None:
        """Return once the client has left; asks only after the request stream has ended."""
        await self._ended.wait()
        while (await self._ask())["type"] == "http.request":
            await asyncio.sleep(_DISCONNECT_POLL_S)

    async def _ask(self) -> MutableMapping[str, Any]:
        # Shielded: pyvoy answers what it was asked even when nobody wants to know any more, and
        # writes a traceback to the log if the question was cancelled.
        return await asyncio.shield(asyncio.ensure_future(self._receive()))

    async def _parse(self, frame: bytes) -> Message:
        payload = frame[PREFIX_BYTES:]
        if frame[0]:
            payload = await on_thread(
                partial(
                    inflate,
                    payload,
                    encoding=self._encoding,
                    max_bytes=min(self._max_bytes, MAX_INFLATED_BYTES),
                )
            )
        return await read_message(self._method.request_class, payload=payload)


async def _inflate_on_thread(body: bytes, *, encoding: bytes) -> bytes:
    return await on_thread(
        partial(decode_only_message, body, encoding=encoding, max_bytes=MAX_INFLATED_BYTES)
    )


def _frame_end(buffer: bytearray, *, start: int, max_bytes: int) -> int | None:
    """Where the message that begins at `start` ends; None if it has not come whole."""
    if len(buffer) < start + PREFIX_BYTES:
        return None
    length = message_length(buffer[start : start + PREFIX_BYTES])
    if length > max_bytes:
        raise ResourceExhausted(f"A streamed message is larger than {max_bytes} bytes")
    end = start + PREFIX_BYTES + length
    return end if len(buffer) >= end else None


async def _send_stream(method: StreamMethod, *, requests: _StreamRequests, send: Send) -> None:
    is_started = False
    error: ServingError | None = None
    try:
        async with aclosing(call_stream(method, requests=requests.messages())) as messages:
            async for message in messages:
                if not is_started:
                    await send(_start_event())
                    is_started = True
                frame = encode_message(message.SerializeToString())
                await send({"type": "http.response.body", "body": frame, "more_body": True})
    except ServingError as raised:
        if not is_started:
            raise
        error = raised
    if not is_started:
        await send(_start_event())
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    await send({"type": "http.response.trailers", "headers": status_headers(error)})


def _start_event() -> dict[str, object]:
    return {
        "type": "http.response.start",
        "status": 200,
        "headers": [_CONTENT_TYPE],
        "trailers": True,
    }


async def _send_message(send: Send, *, payload: bytes) -> None:
    await send(_start_event())
    await send({"type": "http.response.body", "body": encode_message(payload), "more_body": False})
    await send({"type": "http.response.trailers", "headers": status_headers(None)})


async def _send_error(send: Send, *, error: ServingError) -> None:
    """A reply of headers alone, gRPC's form for a call that has no message."""
    headers = [_CONTENT_TYPE, *status_headers(error)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
