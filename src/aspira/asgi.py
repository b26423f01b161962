"""The application that Envoy imports by name: a server whose parent process holds the reins.

The parent hands over the settings and one end of a socket pair in the environment. Over the pair
go JSON lines: the child says `failed`, or `draining` and `drained`; the parent asks for the drain.
The end of the stream means that the parent is gone, and the child goes too.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aspira.contracts.errors import ServingError, Unknown
from aspira.frontends.asgi import Receive, Scope, Send
from aspira.frontends.listeners.envoy import CONTROL_VARIABLE, SETTINGS_VARIABLE
from aspira.observability.log_lines import take_over_logging
from aspira.settings import Settings, decode_settings

if TYPE_CHECKING:
    from aspira.app import Server

_logger = logging.getLogger(__name__)


async def _open_server(settings: Settings) -> "Server":
    from aspira.app import open_server

    return await open_server(settings)


class EnvoyChild:
    """Starts the server with the ASGI lifespan; passes requests on to it."""

    def __init__(
        self, open_server: Callable[[Settings], Awaitable["Server"]] = _open_server
    ) -> None:
        self._open_server = open_server
        self._server: Any = None
        self._control_task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send=send)
        else:
            await self._server.application(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, *, send: Send) -> None:
        await receive()
        take_over_logging()
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: _report_exception(loop, context=context)
        )
        control = socket.socket(fileno=int(os.environ[CONTROL_VARIABLE]))
        reader, writer = await asyncio.open_connection(sock=control)
        # Frameworks start programs of their own, which are none of Envoy's business.
        os.environ.pop("LD_PRELOAD", None)
        try:
            await self._start_server()
        except Exception as raised:  # noqa: BLE001 - whatever it was, the parent is told
            error = _startup_error(raised)
            await _tell(writer, event="failed", code=error.code.name, message=error.message)
            # The parent reports it and ends us. Telling Envoy too would only add its stack trace.
            await reader.read()
            os._exit(1)
        self._control_task = asyncio.create_task(self._follow(reader, writer=writer))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._server.close()
        # The parent drained us before it had Envoy stopped. Finalizing an interpreter that holds
        # frameworks and their threads has nothing left to free, and may crash.
        os._exit(0)

    async def _start_server(self) -> None:
        settings = decode_settings(os.environ[SETTINGS_VARIABLE])
        try:
            self._server = await self._open_server(settings)
        except ImportError as error:
            raise Unknown(f"A package is missing: {error}") from error
        await self._server.start()

    async def _follow(self, reader: asyncio.StreamReader, *, writer: asyncio.StreamWriter) -> None:
        """Obey the parent."""
        line = await reader.readline()
        if not line:
            os._exit(1)
        grace_s = float(json.loads(line)["grace_s"])
        self._server.gate.close()
        await _tell(writer, event="draining")
        is_clean = await self._server.drain(grace_s=grace_s)
        await _tell(writer, event="drained", is_clean=is_clean)
        await reader.read()
        os._exit(0)


def _report_exception(loop: asyncio.AbstractEventLoop, *, context: dict[str, Any]) -> None:
    """As the loop would, but for what happens whenever a client leaves in the wrong moment.

    pyvoy then fails the sends that wait, also those of requests that were cancelled meanwhile.
    """
    is_send_taken_back = isinstance(
        context.get("exception"), asyncio.InvalidStateError
    ) and "Future.set_exception" in repr(context.get("handle"))
    if not is_send_taken_back:
        loop.default_exception_handler(context)


def _startup_error(raised: Exception) -> ServingError:
    if isinstance(raised, ServingError):
        return raised
    _logger.error("The start met a bug", exc_info=raised)
    return Unknown(f"{type(raised).__name__}: {raised}")


async def _tell(writer: asyncio.StreamWriter, **event: object) -> None:
    writer.write(json.dumps(event).encode() + b"\n")
    await writer.drain()


application = EnvoyChild()
