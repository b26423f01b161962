"""Starts the programs that are measured and ends them by process id, whatever happens."""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from processes import list_descendants, try_kill

_START_LIMIT_S = 120
_STOP_LIMIT_S = 45
_POLL_S = 0.05


class StartError(Exception):
    """A program did not come up; the text names its log."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a server listens on 127.0.0.1."""

    grpc: int
    rest: int

    def __iter__(self) -> Iterator[int]:
        return iter((self.grpc, self.rest))


CommandMaker = Callable[[Ports], list[str]]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server with a port open: it may take a while yet until it answers."""

    process_id: int
    ports: Ports


@contextmanager
def run_server(make_command: CommandMaker, *, log: Path) -> Iterator[RunningServer]:
    """A server that is up within the block. Its output is appended to `log`.

    Raises:
        StartError: it ended, or opened neither port in time.
    """
    ports = _find_free_ports()
    with (
        log.open("ab") as output,
        run_program(make_command(ports), stdout=output, stderr=output) as process,
    ):
        _wait_open(process, ports=ports, log=log)
        yield RunningServer(process.pid, ports)


@contextmanager
def run_program(
    command: list[str], *, stdout: IO[bytes] | int, stderr: IO[bytes] | int
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs within the block. It reads what is written to its `stdin`."""
    process = subprocess.Popen(
        bind_to_parent(command),
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        # Ctrl-C goes to a terminal's whole group; programs are to be ended in order, by us.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)


def bind_to_parent(command: list[str]) -> list[str]:
    """The command, told by Linux to end if this process ends without ending it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else command


def _end(process: subprocess.Popen[bytes]) -> None:
    """Politely at first; what is left of its children goes too."""
    children = list_descendants(process.pid)
    try:
        process.terminate()
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        for child in children:
            try_kill(child)
        process.communicate()


def _find_free_ports() -> Ports:
    """Two ports that were free a moment ago."""
    with closing(socket.socket()) as first, closing(socket.socket()) as second:
        for probe in (first, second):
            probe.bind(("127.0.0.1", 0))
        return Ports(grpc=first.getsockname()[1], rest=second.getsockname()[1])


def _wait_open(process: subprocess.Popen[bytes], *, ports: Ports, log: Path) -> None:
    give_up = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            raise StartError(
                f"it ended with status {process.returncode}: {_read_last_line(log)}; see {log.name}"
            )
        if any(map(_is_open, ports)):
            return
        time.sleep(_POLL_S)
    raise StartError(f"it opened no port in {_START_LIMIT_S} s; see {log.name}")


def _is_open(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _read_last_line(log: Path) -> str:
    """What a program said last, most often its error."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")
