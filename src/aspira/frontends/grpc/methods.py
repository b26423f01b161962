"""A gRPC method as a value, so that any listener can carry it: bytes in, bytes out."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from aspira.contracts.errors import Internal, ServingError

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

MAX_MESSAGE_BYTES = 2**31 - 1
_MAX_ERROR_BYTES = 1024
_TRUNCATED = "...TRUNCATED"


class UnaryCall(NamedTuple):
    """A request message and its deadline in seconds of the server's clock; None means none."""

    message: Message
    deadline: float | None


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """One request, one response. The handler raises ServingError to end with another status."""

    request_class: type[Message]
    handler: Callable[[UnaryCall], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """Any number of requests and responses, interleaved as the handler likes."""

    request_class: type[Message]
    handler: Callable[[AsyncIterator[Message]], AsyncIterator[Message]]


Method = UnaryMethod | StreamMethod
Methods = Mapping[str, Method]
"""By path, such as `/tensorflow.serving.PredictionService/Predict`."""


async def call_unary(method: UnaryMethod, *, payload: bytes, deadline: float | None) -> bytes:
    """Parse, handle, serialize.

    Raises:
        ServingError: the status to answer with.
    """
    response = await method.handler(UnaryCall(parse_message(method, payload=payload), deadline))
    serialized: bytes = response.SerializeToString()
    return serialized


def parse_message(method: Method, *, payload: bytes) -> Message:
    """The request message.

    Raises:
        Internal: it is not one; gRPC's own code for this.
    """
    try:
        return method.request_class.FromString(payload)
    except DecodeError as error:
        name = method.request_class.DESCRIPTOR.full_name
        raise Internal(f"Failed to parse the request as {name}: {error}") from error


def status_message(error: ServingError) -> str:
    """The error's text, cut as TensorFlow Serving cuts it: 1024 bytes, ending in a mark."""
    encoded = error.message.encode("utf-8", "replace")
    if len(encoded) <= _MAX_ERROR_BYTES:
        return encoded.decode()
    kept = encoded[: _MAX_ERROR_BYTES - len(_TRUNCATED)].decode("utf-8", "ignore")
    return kept + _TRUNCATED
