"""The gRPC wire format over HTTP/2: length-prefixed messages, timeouts, status. No I/O here.

Source: the gRPC over HTTP2 protocol description.
"""

import zlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from aspira.contracts.errors import (
    Code,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    ServingError,
    Unimplemented,
)
from aspira.frontends.grpc.methods import retry_metadata, status_message
from aspira.frontends.origin import TRACEPARENT
from aspira.frontends.priority import PRIORITY_HEADER, parse_priority

Headers = Iterable[tuple[bytes, bytes]]

PREFIX_BYTES = 5
_MAX_TIMEOUT_DIGITS = 8
_UNIT_SECONDS: Mapping[bytes, float] = MappingProxyType(
    {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
)
_WINDOW_BITS: Mapping[bytes, int] = MappingProxyType({b"gzip": 31, b"deflate": 15})
# Printable ASCII but for `%` goes into `grpc-message` as it is.
_PLAIN_IN_MESSAGE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


class CallHeaders(NamedTuple):
    """What the server needs to know of a call's request headers."""

    timeout_s: float | None = None
    encoding: bytes = b"identity"
    content_length: int | None = None
    priority: int = 0
    is_traced: bool = False


def parse_headers(headers: Headers) -> CallHeaders:
    """Read a call's headers (lower-case names, as HTTP/2 has them).

    Raises:
        InvalidArgument: a timeout that is not one.
    """
    timeout_s, encoding, content_length, priority, is_traced = None, b"identity", None, 0, False
    for name, value in headers:
        if name == b"grpc-timeout":
            timeout_s = parse_timeout(value)
        elif name == b"grpc-encoding":
            encoding = value
        elif name == b"content-length" and value.isdigit():
            content_length = int(value)
        elif name == PRIORITY_HEADER:
            priority = parse_priority(value)
        elif name == TRACEPARENT:
            is_traced = True
    return CallHeaders(timeout_s, encoding, content_length, priority, is_traced)


def parse_timeout(value: bytes) -> float:
    """Seconds of a `grpc-timeout` such as `100m`.

    Raises:
        InvalidArgument: not 1 to 8 digits and a unit.
    """
    digits, unit = value[:-1], _UNIT_SECONDS.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > _MAX_TIMEOUT_DIGITS:
        raise InvalidArgument(f"grpc-timeout is not a number and a unit: {value[:64]!r}")
    return int(digits) * unit


def encode_message(payload: bytes) -> bytes:
    """An uncompressed message with its prefix."""
    # Five bytes: the flag "not compressed", which is zero, and four of length.
    return len(payload).to_bytes(PREFIX_BYTES, "big") + payload


def decode_only_message(body: bytes, *, encoding: bytes, max_bytes: int) -> bytes:
    """The one message of a unary request body.

    Raises:
        Internal: the body is not exactly one message.
        Unimplemented: a compression that is not known here.
        ResourceExhausted: it is larger than `max_bytes` once inflated.
    """
    if len(body) < PREFIX_BYTES or len(body) != PREFIX_BYTES + message_length(body):
        raise Internal("The request body is not exactly one length-prefixed gRPC message")
    if not body[0]:
        return body[PREFIX_BYTES:]
    return inflate(body[PREFIX_BYTES:], encoding=encoding, max_bytes=max_bytes)


def message_length(prefix: bytes | bytearray) -> int:
    """The payload length that a message's first five bytes announce."""
    return int.from_bytes(prefix[1:PREFIX_BYTES], "big")


def inflate(payload: bytes, *, encoding: bytes, max_bytes: int) -> bytes:
    """Undo the compression of one message, without ever holding more than the bound.

    It may take a while, in which the interpreter's lock is released.
    """
    window_bits = _WINDOW_BITS.get(encoding)
    if window_bits is None:
        supported = ", ".join(name.decode() for name in _WINDOW_BITS)
        raise Unimplemented(
            f"grpc-encoding {encoding.decode('latin-1')} is not supported; use one of {supported}"
        )
    inflater = zlib.decompressobj(window_bits)
    try:
        inflated = inflater.decompress(payload, max_bytes + 1)
    except zlib.error as error:
        raise Internal(f"The compressed message is damaged: {error}") from error
    if len(inflated) > max_bytes:
        raise ResourceExhausted(f"The inflated message is larger than {max_bytes} bytes")
    if not inflater.eof:
        raise Internal("The compressed message is truncated")
    if inflater.unused_data:
        raise Internal("The compressed message is damaged: there are bytes after its end")
    return inflated


def status_headers(error: ServingError | None) -> list[tuple[bytes, bytes]]:
    """The trailers that end a call; None is OK."""
    if error is None:
        return [(b"grpc-status", b"0")]
    code = error.code if error.code is not Code.OK else Code.UNKNOWN
    message = quote(status_message(error), safe=_PLAIN_IN_MESSAGE).encode("ascii")
    return [
        (b"grpc-status", str(int(code)).encode()),
        (b"grpc-message", message),
        *[(name.encode(), value.encode()) for name, value in retry_metadata(error)],
    ]
