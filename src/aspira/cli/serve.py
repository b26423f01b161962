"""Runs a server until it is told to end: inside Envoy and supervised, or in this process."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from aspira.cli.signals import ShutdownSignals, end_on_signals
from aspira.contracts.errors import FailedPrecondition, ServingError
from aspira.frontends.listeners.channel_arguments import unknown_to_envoy
from aspira.frontends.listeners.envoy import (
    EnvoyServer,
    describe_exit,
    find_libpython,
    make_command,
)
from aspira.frontends.listeners.options import ListenerOptions, check_ports_free
from aspira.frontends.listeners.tls import Tls, read_tls
from aspira.settings import ListenerKind, Settings, check_settings, encode_settings

EXIT_FAILED = 255
_EXIT_FORCED = 130
_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 30.0


def serve(settings: Settings, *, greeting: str = "") -> int:
    """Serve until a signal; returns the exit status. `greeting` is said once the ports are open."""
    end_on_signals()
    # TensorFlow's chatter about the machine would bury what the server says.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        check_settings(settings)
        tls = read_tls(settings.listener.ssl_config_file)
        check_ports_free(settings.listener)
        if choose_listener(settings.process.listener) is ListenerKind.PORTABLE:
            return asyncio.run(_run_portable(settings, greeting=greeting, tls=tls))
        _report_unknown_to_envoy(settings.listener)
        return asyncio.run(_run_envoy(settings, greeting=greeting, tls=tls))
    except ServingError as error:
        print(f"Failed to start server. Error: {error}", flush=True)
        return EXIT_FAILED


def choose_listener(wanted: str) -> ListenerKind:
    """The listener to use. `auto` is Envoy wherever it can run, and says so where it cannot."""
    kind = ListenerKind(wanted)
    if kind is not ListenerKind.AUTO:
        return kind
    if find_libpython() is not None:
        return ListenerKind.ENVOY
    report(
        "Using the portable listener, which is slower: this Python has no shared library for "
        "Envoy to load (Debian has it in the package libpython3)."
    )
    return ListenerKind.PORTABLE


def report(message: str) -> None:
    """A line for the person at the terminal or the log."""
    print(message, file=sys.stderr, flush=True)


async def _run_envoy(settings: Settings, *, greeting: str, tls: Tls | None) -> int:
    with tempfile.TemporaryDirectory(prefix="aspira-") as directory:
        supervisor = _Supervisor(settings, directory=Path(directory), tls=tls)
        return await supervisor.run(greeting)


class _Supervisor:
    """Keeps one Envoy process serving, and takes it down in order."""

    def __init__(self, settings: Settings, *, directory: Path, tls: Tls | None) -> None:
        self._settings = settings
        self._directory = directory
        self._tls = tls
        self._server: EnvoyServer | None = None

    async def run(self, greeting: str) -> int:
        """Serve until a signal; returns the exit status."""
        signals = ShutdownSignals(self._end_at_once)
        stopping = asyncio.ensure_future(signals.wait())
        backoff_s = _FIRST_BACKOFF_S
        try:
            server = await self._start(stopping)
            while server is not None:
                _report_listening(self._settings.listener, greeting=greeting)
                status = await self._wait_ended(server, stopping=stopping)
                if status is None:
                    return await self._shut_down(server)
                report(
                    f"The server process died ({describe_exit(status)}); "
                    f"starting it again in {backoff_s:g} s"
                )
                await asyncio.wait({stopping}, timeout=backoff_s)
                backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)
                server = await self._start(stopping)
            return 0
        finally:
            stopping.cancel()
            if self._server is not None:
                await self._server.kill()

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
        await listening
        return server

    async def _wait_ended(
        self, server: EnvoyServer, *, stopping: asyncio.Future[None]
    ) -> int | None:
        """The exit status of a process that died; None if it is to be stopped."""
        ended = asyncio.ensure_future(server.wait_ended())
        waiting: set[asyncio.Future[Any]] = {ended, stopping}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if stopping.done():
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
            return None
        return await ended

    async def _shut_down(self, server: EnvoyServer) -> int:
        grace_s = self._settings.process.shutdown_grace_s
        await server.begin_drain(grace_s=grace_s)
        _report_draining(grace_s)
        is_clean = await server.end_drain()
        await server.stop()
        self._server = None
        _report_stopped(is_clean=is_clean)
        return 0

    def _end_at_once(self) -> None:
        if self._server is not None:
            self._server.kill_now()
        os._exit(_EXIT_FORCED)


async def _run_portable(settings: Settings, *, greeting: str, tls: Tls | None) -> int:
    from aspira.app import Server
    from aspira.frontends.listeners.portable import PortableListener

    signals = ShutdownSignals(lambda: os._exit(_EXIT_FORCED))
    stopping = asyncio.ensure_future(signals.wait())
    server = Server(settings)
    starting = asyncio.ensure_future(server.start())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        os._exit(0)
    await starting
    try:
        listener = PortableListener(
            settings.listener,
            methods=server.methods,
            rest=server.rest_application,
            gate=server.gate,
            clock=server.clock,
            tls=tls,
        )
        await listener.start()
    except (OSError, RuntimeError) as error:
        raise FailedPrecondition(f"Cannot listen: {error}") from error
    _report_listening(settings.listener, greeting=greeting)
    await stopping
    grace_s = settings.process.shutdown_grace_s
    server.gate.close()
    _report_draining(grace_s)
    is_clean = await server.drain(grace_s=grace_s)
    await listener.stop()
    _report_stopped(is_clean=is_clean)
    sys.stdout.flush()
    # A run that outlasted the grace period sits in a thread that nothing can end.
    os._exit(0)


def _report_unknown_to_envoy(options: ListenerOptions) -> None:
    unknown = unknown_to_envoy(options.grpc_channel_arguments)
    if unknown:
        report(
            f"WARNING: {', '.join(unknown)} of --grpc_channel_arguments has NO EFFECT with the "
            "Envoy listener; --listener=portable passes everything to gRPC"
        )


def _report_listening(options: ListenerOptions, *, greeting: str) -> None:
    kind = "SSL credentials" if options.ssl_config_file else "InsecureServerCredentials"
    report(f"Using {kind}")
    if options.grpc_port:
        report(f"Running gRPC ModelServer at {options.shown_host}:{options.grpc_port} ...")
    if options.grpc_socket_path:
        report(f"Running gRPC ModelServer at UNIX socket {options.grpc_socket_path} ...")
    if options.rest_port:
        report(f"Exporting HTTP/REST API at:{options.shown_host}:{options.rest_port} ...")
    if greeting:
        report(greeting)


def _report_draining(grace_s: float) -> None:
    report(f"Shutting down: finishing requests in flight (at most {grace_s:g} s) ...")


def _report_stopped(*, is_clean: bool) -> None:
    report("Stopped." if is_clean else "Stopped; some requests did not end in time and were cut.")
