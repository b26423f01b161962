"""A gRPC method as a value, so that any listener can carry it: bytes in, bytes out."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from aspira.contracts.errors import Internal, ServingError
from aspira.frontends.offload import LARGE_BYTES, on_thread

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

MAX_MESSAGE_BYTES = 2**31 - 1
_MAX_ERROR_BYTES = 1024
_TRUNCATED = "...TRUNCATED"
_RETRY_PUSHBACK = "grpc-retry-pushback-ms"
_MILLIS_PER_SECOND = 1000

_logger = logging.getLogger(__name__)


class UnaryCall(NamedTuple):
    """A request message and its deadline in seconds of the server's clock; None means none.

    `num_bytes` is the size of the message; see `parse_priority` for the priority. The message is
    its bytes where the method says so.
    """

    message: Message
    deadline: float | None
    num_bytes: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """One request, one response. The handler raises ServingError to end with another status.

    A handler may give its response serialized, if that is large. A question, about the server or
    its models, is answered even while the server shuts down. What can be dropped is cancelled once
    its client has left. A handler that takes bytes calls `read_message` itself.
    """

    request_class: type[Message]
    handler: Callable[[UnaryCall], Awaitable[Message | bytes]]
    is_question: bool = False
    can_be_dropped: bool = True
    takes_bytes: bool = False


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """Any number of requests and responses, interleaved as the handler likes.

    The handler's generator is closed when the client leaves. Its work is not counted among the
    requests in flight; a handler with work of its own enters the gate. `max_message_bytes`, of a
    request, is gRPC's default for those that are small anyway.
    """

    request_class: type[Message]
    handler: Callable[[AsyncIterator[Message]], AsyncGenerator[Message, None]]
    max_message_bytes: int = 4 * 2**20


Method = UnaryMethod | StreamMethod
Methods = Mapping[str, Method]
"""By path, such as `/tensorflow.serving.PredictionService/Predict`."""


async def call_unary(
    method: UnaryMethod, *, payload: bytes, deadline: float | None, priority: int = 0
) -> bytes:
    """Parse, handle, serialize.

    Raises:
        ServingError: the status to answer with; a bug of the handler is one, too.
    """
    num_bytes = len(payload)
    try:
        message: Message = payload
        if not method.takes_bytes:
            message = await read_message(method.request_class, payload=payload)
        response: Message = await method.handler(UnaryCall(message, deadline, num_bytes, priority))
        # The exact type, since asking a message for its class is slow.
        serialized: bytes = response if type(response) is bytes else response.SerializeToString()
    except ServingError:
        raise
    except Exception as error:
        raise _report_bug(error, method=method) from error
    return serialized


async def call_stream(
    method: StreamMethod, *, requests: AsyncIterator[Message]
) -> AsyncGenerator[Message, None]:
    """The handler's responses. To be closed by the reader.

    Raises:
        ServingError: the status to answer with; a bug of the handler is one, too.
    """
    try:
        async with aclosing(method.handler(requests)) as responses:
            async for response in responses:
                yield response
    except ServingError:
        raise
    except Exception as error:
        raise _report_bug(error, method=method) from error


async def read_message(
    request_class: type[Message], *, payload: bytes, large_bytes: int = LARGE_BYTES
) -> Message:
    """As `parse_message`, on the loop's pool from `large_bytes` on."""
    if len(payload) < large_bytes:
        return parse_message(request_class, payload=payload)
    return await on_thread(partial(parse_message, request_class, payload=payload))


def parse_message(request_class: type[Message], *, payload: bytes) -> Message:
    """The request message.

    Raises:
        Internal: it is not one; gRPC's own code for this.
    """
    try:
        return request_class.FromString(payload)
    except DecodeError as error:
        name = request_class.DESCRIPTOR.full_name
        raise Internal(f"Failed to parse the request as {name}: {error}") from error


def status_message(error: ServingError) -> str:
    """The error's text, cut as TensorFlow Serving cuts it: 1024 bytes, and a mark after them."""
    encoded = error.message.encode("utf-8", "replace")
    if len(encoded) <= _MAX_ERROR_BYTES:
        return encoded.decode()
    return encoded[:_MAX_ERROR_BYTES].decode("utf-8", "ignore") + _TRUNCATED


def retry_metadata(error: ServingError) -> tuple[tuple[str, str], ...]:
    """When to try again, in the metadata that gRPC's own retry policies obey."""
    if error.retry_after_s is None:
        return ()
    return ((_RETRY_PUSHBACK, str(ceil(error.retry_after_s * _MILLIS_PER_SECOND))),)


def _report_bug(error: Exception, *, method: Method) -> Internal:
    name = method.request_class.DESCRIPTOR.full_name
    _logger.error("A call met a bug: %s", name, exc_info=error)
    return Internal("The server met a bug; its log has the details")
