"""Starts real servers for tests: the command a user runs, on free loopback ports."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

START_S = 60
STOP_S = 30


class ServerProcess:
    """`aspira serve` with the given flags. Waits until its ports are open; kills on exit."""

    def __init__(
        self,
        *flags: str,
        log: Path,
        command: str = "aspira",
        scheme: str = "http",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.grpc_port, self.rest_port = free_ports(2)
        self.log = log
        self.rest_url = f"{scheme}://127.0.0.1:{self.rest_port}"
        program = Path(sys.executable).with_name(command)
        subcommand = ["serve"] if command == "aspira" else []
        self.arguments = [
            str(program),
            *subcommand,
            "--host=127.0.0.1",
            f"--port={self.grpc_port}",
            f"--rest_api_port={self.rest_port}",
            *flags,
        ]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def grpc_target(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        if not self.wait_for_line("Exporting HTTP/REST API"):
            self.kill()
            raise AssertionError(f"the server did not start:\n{self.output()}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.arguments,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def wait_for_line(self, text: str) -> bool:
        """Whether the log says so before the process ends."""
        with self.log.open("rb") as log:
            follower = subprocess.Popen(
                ["tail", "-n", "+1", "-f", f"--pid={self.pid}", str(self.log)],
                stdout=subprocess.PIPE,
            )
            del log
        assert follower.stdout is not None
        try:
            return any(text.encode() in line for line in follower.stdout)
        finally:
            follower.kill()
            follower.wait()
            follower.stdout.close()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit status."""
        assert self._process is not None
        return self._process.wait(timeout=STOP_S)

    def kill(self) -> None:
        """End it and all its children at once, if it is still there."""
        if self._process is None:
            return
        for child in self.children():
            with_ignored_error(child)
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def children(self) -> list[int]:
        """Process ids of the server's children."""
        try:
            text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(word) for word in text.split()]

    def serving_pid(self) -> int:
        """The process that holds the models: Envoy's, or the server itself."""
        envoys = (pid for pid in self.children() if name_of(pid) == "envoy")
        return next(envoys, self.pid)

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.serving_pid()}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def output(self) -> str:
        """Everything it logged so far."""
        return self.log.read_text(errors="replace")

    def stdout(self) -> str:
        """What it printed, once it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.read().decode()


def name_of(pid: int) -> str:
    """A process's name; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def with_ignored_error(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    with sockets(count) as probes:
        return [int(probe.getsockname()[1]) for probe in probes]


@contextmanager
def sockets(count: int) -> Iterator[list[socket.socket]]:
    opened = [socket.socket() for _ in range(count)]
    try:
        for probe in opened:
            probe.bind(("127.0.0.1", 0))
        yield opened
    finally:
        for probe in opened:
            probe.close()
