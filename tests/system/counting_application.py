"""An application that writes down its start-ups, and answers with the event loop it runs on."""

import asyncio
import os
from pathlib import Path

from aspira.frontends.asgi import Receive, Scope, Send

STARTS_VARIABLE = "COUNTED_STARTS_FILE"


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await receive()
        _count_start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = f"{_loop_id()} {scope['scheme']} {scope['http_version']}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _count_start() -> None:
    with Path(os.environ[STARTS_VARIABLE]).open("a") as starts:
        starts.write(f"{_loop_id()}\n")


def _loop_id() -> int:
    return id(asyncio.get_running_loop())
