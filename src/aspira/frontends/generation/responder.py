"""Sends one answer over ASGI: whole, or as server-sent events, and errors in the form that fits."""

import time
from collections.abc import Mapping

from aspira.contracts.errors import ServingError
from aspira.frontends.asgi import Send
from aspira.frontends.generation.errors import EncodeError

RawHeaders = tuple[tuple[bytes, bytes], ...]

JSON = "application/json"

_STREAM_HEADERS: RawHeaders = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # nginx would collect events otherwise.
    (b"x-accel-buffering", b"no"),
)
_KEEP_ALIVE = b": keep-alive\n\n"


class Responder:
    """Made for one request, whose id and time of creation are in every part of the answer."""

    def __init__(
        self,
        send: Send,
        *,
        request_id: str,
        headers: RawHeaders,
        encode_error: EncodeError,
        last_event: bytes | None = None,
    ) -> None:
        self._send = send
        self._headers = ((b"x-request-id", request_id.encode()), *headers)
        self._encode_error = encode_error
        self._last_event = last_event
        self._is_streaming = False
        self._is_ended = False
        self.request_id = request_id
        self.created = int(time.time())

    async def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """The whole answer."""
        self._is_ended = True
        extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        length = (b"content-length", b"%d" % len(body))
        content = (b"content-type", content_type.encode())
        await self._start(status, headers=(content, length, *extra))
        await self._send({"type": "http.response.body", "body": body})

    async def start_events(self) -> None:
        """The status, after which errors are events. It leaves at once, however long they wait."""
        self._is_streaming = True
        await self._start(200, headers=_STREAM_HEADERS)
        # The Envoy listener keeps a head until there is a body; one without bytes is enough.
        await self._write(b"")

    async def send_event(self, data: bytes) -> None:
        """One event, whole in one write, as some clients want it."""
        await self._write(b"data: " + data + b"\n\n")

    async def keep_alive(self) -> None:
        """A comment: clients skip it, proxies see that the connection is in use."""
        await self._write(_KEEP_ALIVE)

    async def end_events(self) -> None:
        """The event after which there is none, if the API has one."""
        self._is_ended = True
        last = b"" if self._last_event is None else b"data: " + self._last_event + b"\n\n"
        await self._send({"type": "http.response.body", "body": last})

    async def fail(self, error: ServingError) -> None:
        """Answer with an error: by a status if that is still open, else by an event, the last."""
        if self._is_ended:
            return
        status, body, headers = self._encode_error(error)
        if not self._is_streaming:
            await self.answer(body, status=status, headers=headers)
            return
        self._is_ended = True
        event = b"data: " + body + b"\n\n"
        await self._send({"type": "http.response.body", "body": event})

    async def _start(self, status: int, *, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        all_headers = [*headers, *self._headers]
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})

    async def _write(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
