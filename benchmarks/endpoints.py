"""What is called on a server: path, body and the answer that proves it works."""

import http.client
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import grpc

_CALL_TIMEOUT_S = 30


class Protocol(Enum):
    """What a request travels by."""

    GRPC = "gRPC"
    REST = "REST"


_GRPC_HEADERS = (("content-type", "application/grpc"), ("te", "trailers"))


class CheckError(Exception):
    """An endpoint answers something else than it should; the text says what."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One request, to be repeated. `body` is as on the wire, a gRPC message with its prefix."""

    protocol: Protocol
    path: str
    body: bytes
    is_right: Callable[[bytes], bool]
    """Judges the body of an answer, without gRPC's prefix."""

    content_type: str = "application/json"
    """Of a REST request."""

    metadata: tuple[tuple[str, str], ...] = ()
    """Headers besides the protocol's own."""

    answer_bytes: int = 0
    """Size of an answer's body on the wire; 0 until it was seen."""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All that the load generator is to send."""
        if self.protocol is Protocol.GRPC:
            return (*_GRPC_HEADERS, *self.metadata)
        return (("content-type", self.content_type), *self.metadata)


def frame_message(message: bytes) -> bytes:
    """A gRPC message as on the wire: a byte for compression, four for the length, the message."""
    return struct.pack(">BI", 0, len(message)) + message


def check_endpoint(endpoint: Endpoint, *, port: int) -> Endpoint:
    """Call it once; returns it with the size of its answers.

    Raises:
        CheckError: it failed, or the answer is not the expected one.
    """
    if endpoint.protocol is Protocol.GRPC:
        answer = _call_grpc(endpoint, port=port)
        answer_bytes = len(frame_message(answer))
    else:
        answer = _call_rest(endpoint, port=port)
        answer_bytes = len(answer)
    if not endpoint.is_right(answer):
        raise CheckError(f"the answer is wrong: {answer[:80]!r}")
    return replace(endpoint, answer_bytes=answer_bytes)


def _call_grpc(endpoint: Endpoint, *, port: int) -> bytes:
    message = endpoint.body[len(frame_message(b"")) :]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        # Without serializers, bytes go out and come in as they are.
        call = channel.unary_unary(endpoint.path)
        try:
            answer: bytes = call(message, timeout=_CALL_TIMEOUT_S, metadata=endpoint.metadata)
        except grpc.RpcError as error:
            raise CheckError(f"{error.code().name}: {error.details()}") from error
    return answer


def _call_rest(endpoint: Endpoint, *, port: int) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_CALL_TIMEOUT_S)
    try:
        connection.request(
            "POST", endpoint.path, body=endpoint.body, headers=dict(endpoint.headers)
        )
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise CheckError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise CheckError(f"HTTP status {answer.status}: {content[:80]!r}")
    return content
