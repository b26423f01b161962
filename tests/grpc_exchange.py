"""Plays a gRPC client over ASGI: messages in, messages and a status out."""

from dataclasses import dataclass
from typing import Any

from asgi_exchange import Answer, Headers, Request, exchange
from aspira.contracts.errors import Code
from aspira.frontends.asgi import Application

# Message classes are generated, hence Any.
Message = Any

PREFIX_BYTES = 5


@dataclass(frozen=True)
class CallResult:
    """What a gRPC client makes of an answer."""

    messages: list[Message]
    code: Code
    text: str


def frame(payload: bytes, *, is_compressed: bool = False) -> bytes:
    return bytes([is_compressed]) + len(payload).to_bytes(4, "big") + payload


def call_request(path: str, *messages: Message, headers: Headers | None = None) -> Request:
    """The request of a call: all its messages in one chunk."""
    body = b"".join(frame(message.SerializeToString()) for message in messages)
    return Request(
        "POST",
        path,
        headers={"content-type": "application/grpc", "te": "trailers", **(headers or {})},
        chunks=(body,),
    )


async def call(
    application: Application,
    *,
    path: str,
    message: Message,
    answer_class: type[Message],
    headers: Headers | None = None,
) -> CallResult:
    """One call with one message."""
    request = call_request(path, message, headers=headers)
    return read_result(await exchange(application, request=request), answer_class=answer_class)


def read_result(answer: Answer, *, answer_class: type[Message]) -> CallResult:
    """The messages and status of an answer."""
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/grpc"
    messages, body = [], answer.body
    while body:
        end = PREFIX_BYTES + int.from_bytes(body[1:PREFIX_BYTES], "big")
        assert body[0] == 0
        assert len(body) >= end
        messages.append(answer_class.FromString(body[PREFIX_BYTES:end]))
        body = body[end:]
    ending = answer.trailers or answer.headers
    return CallResult(messages, Code(int(ending["grpc-status"])), ending.get("grpc-message", ""))
