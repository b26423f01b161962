"""The ASGI types that frontends use, reading a request body within a bound, answering HEAD."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from aspira.contracts.errors import Cancelled, ResourceExhausted

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# TensorFlow Serving's bound on an inflated REST body; gRPC's messages have it too.
MAX_INFLATED_BYTES = 100 * 2**20


async def read_body(receive: Receive, *, max_bytes: int, content_length: int | None) -> bytes:
    """The whole request body.

    Raises:
        ResourceExhausted: it is, or says it will be, larger than `max_bytes`.
        Cancelled: the client went away before its end.
    """
    if content_length is not None and content_length > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    num_bytes, is_more = 0, True
    while is_more:
        message = await receive()
        if message["type"] != "http.request":
            raise Cancelled("The client closed the connection before the request was complete")
        chunk: bytes = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise _too_large(max_bytes)
        is_more = bool(message.get("more_body"))
        if not is_more and not chunks:
            # Nearly every body comes whole.
            return chunk
        chunks.append(chunk)
    return b"".join(chunks)


def without_bodies(send: Send) -> Send:
    """For HEAD: the head of each answer, its length included, without what would follow it."""

    async def send_head(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head


def _too_large(max_bytes: int) -> ResourceExhausted:
    return ResourceExhausted(f"The request body is larger than the limit of {max_bytes} bytes")
