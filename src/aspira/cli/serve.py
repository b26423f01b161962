"""Runs a server until it is told to end: inside Envoy and supervised, or in this process."""

import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aspira.cli.signals import ShutdownSignals, end_on_signals
from aspira.cli.supervisor import Supervisor, say_draining, say_stopped
from aspira.contracts.errors import FailedPrecondition, ServingError
from aspira.frontends.listeners.channel_arguments import unknown_to_envoy
from aspira.frontends.listeners.envoy import find_libpython
from aspira.frontends.listeners.options import (
    ListenerOptions,
    check_port_free,
    check_ports_free,
)
from aspira.frontends.listeners.tls import Tls, read_tls
from aspira.observability.log_lines import say, take_over_logging
from aspira.runtimes.accelerator_options import (
    AUTO,
    INSTALL_OPENVINO,
    AcceleratorOptions,
    has_openvino,
)
from aspira.settings import ListenerKind, Settings, check_settings

if TYPE_CHECKING:
    from aspira.app import Server

EXIT_FAILED = 255


def serve(settings: Settings, *, greeting: str = "") -> int:
    """Serve until a signal; returns the exit status. `greeting` is said once the ports are open."""
    end_on_signals()
    _raise_file_limit()
    take_over_logging()
    # TensorFlow's chatter about the machine would bury what the server says.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        check_settings(settings)
        tls = read_tls(settings.listener.ssl_config_file)
        _report_missing_accelerator(settings.accelerator)
        _check_ports_free(settings)
        if choose_listener(settings.process.listener) is ListenerKind.PORTABLE:
            return asyncio.run(_run_portable(settings, greeting=greeting, tls=tls))
        _report_unknown_to_envoy(settings.listener)
        return asyncio.run(_run_envoy(settings, greeting=greeting, tls=tls))
    except ServingError as error:
        print(f"Failed to start server. Error: {error}", flush=True)
        return EXIT_FAILED


def _raise_file_limit() -> None:
    """Each connection is an open file, and shells allow 1024, for programs that use `select`."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems do not take what they give as the most.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _check_ports_free(settings: Settings) -> None:
    check_ports_free(settings.listener)
    if settings.admin.port:
        address = settings.listener.at(settings.admin.host)
        check_port_free(address.bind_host, port=settings.admin.port, flags="--admin_port")
        say(f"Opening the admin port at {address.shown_host}:{settings.admin.port} ...")


def choose_listener(wanted: str) -> ListenerKind:
    """The listener to use. `auto` is Envoy wherever it can run, and says so where it cannot."""
    kind = ListenerKind(wanted)
    if kind is not ListenerKind.AUTO:
        return kind
    if find_libpython() is not None:
        return ListenerKind.ENVOY
    say(
        "Using the portable listener, which is slower: this Python has no shared library for "
        "Envoy to load (Debian has it in the package libpython3).",
        severity="W",
    )
    return ListenerKind.PORTABLE


def report(message: str) -> None:
    """A line for the person at the terminal."""
    print(message, file=sys.stderr, flush=True)


async def _run_envoy(settings: Settings, *, greeting: str, tls: Tls | None) -> int:
    with tempfile.TemporaryDirectory(prefix="aspira-") as directory:
        supervisor = Supervisor(settings, directory=Path(directory), tls=tls)
        return await supervisor.run(lambda: _report_listening(settings.listener, greeting=greeting))


async def _run_portable(settings: Settings, *, greeting: str, tls: Tls | None) -> int:
    from aspira.app import open_server
    from aspira.frontends.listeners.portable import PortableListener

    signals = ShutdownSignals(os._exit, is_drained=settings.process.is_drained)
    stopping = asyncio.ensure_future(signals.wait())
    starting = asyncio.ensure_future(_start(open_server(settings)))
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        os._exit(0)
    server = await starting
    try:
        listener = PortableListener(
            settings.listener,
            methods=server.methods,
            rest=server.application,
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
    say_draining(grace_s)
    is_clean = await server.drain(grace_s=grace_s)
    await listener.stop()
    await server.close()
    say_stopped(is_clean=is_clean)
    sys.stdout.flush()
    # A run that outlasted the grace period sits in a thread that nothing can end.
    os._exit(0)


async def _start(opening: Awaitable["Server"]) -> "Server":
    server = await opening
    await server.start()
    return server


def _report_missing_accelerator(options: AcceleratorOptions) -> None:
    if options.kind == AUTO and not has_openvino():
        text = f"--accelerator=auto serves with TensorFlow alone. {INSTALL_OPENVINO}"
        say(text, severity="W")


def _report_unknown_to_envoy(options: ListenerOptions) -> None:
    unknown = unknown_to_envoy(options.grpc_channel_arguments)
    if unknown:
        say(
            f"{', '.join(unknown)} of --grpc_channel_arguments has NO EFFECT with the "
            "Envoy listener; --listener=portable passes everything to gRPC",
            severity="W",
        )


def _report_listening(options: ListenerOptions, *, greeting: str) -> None:
    kind = "SSL credentials" if options.ssl_config_file else "InsecureServerCredentials"
    say(f"Using {kind}")
    if options.grpc_port:
        say(f"Running gRPC ModelServer at {options.shown_host}:{options.grpc_port} ...")
    if options.grpc_socket_path:
        say(f"Running gRPC ModelServer at UNIX socket {options.grpc_socket_path} ...")
    if options.rest_port:
        say(f"Exporting HTTP/REST API at:{options.shown_host}:{options.rest_port} ...")
    if greeting:
        report(greeting)
