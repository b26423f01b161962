"""The least an application under pyvoy can do: send the body back, end a gRPC call well."""

from collections.abc import Awaitable, Callable
from typing import Any

_GRPC = (b"content-type", b"application/grpc")
_JSON = (b"content-type", b"application/json")
_OK = {"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")]}


async def application(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    body = b""
    is_more = True
    while is_more:
        event = await receive()
        body += event["body"]
        is_more = event["more_body"]
    is_grpc = _GRPC in scope["headers"]
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [_GRPC if is_grpc else _JSON],
            "trailers": is_grpc,
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})
    if is_grpc:
        await send(_OK)
