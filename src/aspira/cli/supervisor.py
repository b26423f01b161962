"""Keeps the server process alive, and takes it down in order, in a time that is bounded."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aspira.cli.signals import ShutdownSignals
from aspira.contracts.errors import ServingError
from aspira.frontends.listeners.envoy import EnvoyServer, describe_exit, make_command
from aspira.frontends.listeners.tls import Tls
from aspira.observability.log_lines import say
from aspira.settings import Settings, encode_settings

_EXIT_KILLED = 1
_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 30.0
# A process that has run this long is not in a crash loop.
_SETTLED_S = 60.0
# For what comes after the grace period: unloading, the last bytes, Envoy's own end.
_CLOSE_S = 10.0


class Supervisor:
    """One Envoy process at a time."""

    def __init__(self, settings: Settings, *, directory: Path, tls: Tls | None) -> None:
        self._settings = settings
        self._directory = directory
        self._tls = tls
        self._server: EnvoyServer | None = None
        self._backoff_s = _FIRST_BACKOFF_S

    async def run(self, on_listening: Callable[[], None]) -> int:
        """Serve until a signal; returns the exit status.

        Raises:
            ServingError: the first start failed. Later ones are tried again.
        """
        signals = ShutdownSignals(self._end_at_once, is_drained=self._settings.process.is_drained)
        stopping = asyncio.ensure_future(signals.wait())
        try:
            server = await self._start(stopping)
            while server is not None:
                on_listening()
                started_s = asyncio.get_running_loop().time()
                status = await _wait_ended(server, stopping=stopping)
                if status is None:
                    return await self._shut_down(server)
                await self._let_go()
                is_settled = asyncio.get_running_loop().time() - started_s > _SETTLED_S
                server = await self._restart(
                    f"The server process died ({describe_exit(status)})",
                    stopping=stopping,
                    is_in_loop=not is_settled,
                )
            return 0
        finally:
            stopping.cancel()
            await self._let_go()

    async def _start(self, stopping: asyncio.Future[None]) -> EnvoyServer | None:
        """A server with its ports open; None if a signal came first."""
        if stopping.done():
            return None
        command = make_command(
            self._settings.listener,
            settings=encode_settings(self._settings),
            directory=self._directory,
            tls=self._tls,
        )
        server = await EnvoyServer.start(command, directory=self._directory)
        self._server = server
        listening = asyncio.ensure_future(server.wait_listening())
        await asyncio.wait({listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            return None
        try:
            await listening
        except ServingError:
            # A process that told why it cannot start waits for its end, with all that it loaded.
            await self._let_go()
            raise
        command.config_file.unlink()
        return server

    async def _let_go(self) -> None:
        """See that the process has ended, and forget it."""
        server, self._server = self._server, None
        if server is not None:
            await server.kill()

    async def _restart(
        self, reason: str, *, stopping: asyncio.Future[None], is_in_loop: bool
    ) -> EnvoyServer | None:
        """Start again, at first soon, then less and less often; None if a signal came first."""
        backoff_s = self._backoff_s if is_in_loop else _FIRST_BACKOFF_S
        while not stopping.done():
            say(f"{reason}; starting it again in {backoff_s:g} s", severity="E")
            await asyncio.wait({stopping}, timeout=backoff_s)
            backoff_s = self._backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
            try:
                return await self._start(stopping)
            except ServingError as error:
                reason = f"The server did not start again: {error}"
        return None

    async def _shut_down(self, server: EnvoyServer) -> int:
        grace_s = self._settings.process.shutdown_grace_s
        try:
            async with asyncio.timeout(grace_s + _CLOSE_S):
                await server.begin_drain(grace_s=grace_s)
                say_draining(grace_s)
                is_clean = await server.end_drain()
                await server.stop()
        except TimeoutError:
            await server.kill()
            say("The server process did not answer, and was killed.", severity="E")
            return _EXIT_KILLED
        say_stopped(is_clean=is_clean)
        return 0

    def _end_at_once(self, status: int) -> None:
        if self._server is not None:
            self._server.kill_now()
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(status)


def say_draining(grace_s: float) -> None:
    """A shutdown begins."""
    say(f"Shutting down: finishing requests in flight (at most {grace_s:g} s) ...")


def say_stopped(*, is_clean: bool) -> None:
    """A shutdown has ended."""
    if is_clean:
        say("Stopped.")
    else:
        say("Stopped; some requests did not end in time and were cut.", severity="W")


async def _wait_ended(server: EnvoyServer, *, stopping: asyncio.Future[None]) -> int | None:
    """The exit status of a process that died; None if it is to be stopped."""
    ended = asyncio.ensure_future(server.wait_ended())
    waiting: set[asyncio.Future[Any]] = {ended, stopping}
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if stopping.done():
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)
        return None
    return await ended
