"""Programs that are measured come up, or say why not, and leave nothing behind."""

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

_END_LIMIT_S = 30

SERVE = """
import socket, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()
"""


@pytest.fixture
def servers(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("servers")


def test_a_server_that_dies_says_why(servers: ModuleType, tmp_path: Path) -> None:
    program = "import sys; print('starting'); sys.exit('no such model')"
    command = [sys.executable, "-c", program]
    with (
        pytest.raises(servers.StartError, match=r"it ended with status 1: no such model; see log"),
        servers.run_server(lambda _: command, log=tmp_path / "log"),
    ):
        pass


@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_one_open_port_will_do_and_children_end_too(
    servers: ModuleType,
    import_benchmark: Callable[[str], ModuleType],
    tmp_path: Path,
    protocol: str,
) -> None:
    processes = import_benchmark("processes")

    def make_command(ports: object) -> list[str]:
        return [sys.executable, "-c", SERVE, str(getattr(ports, protocol))]

    with servers.run_server(make_command, log=tmp_path / "log") as running:
        family = [running.process_id, *processes.list_descendants(running.process_id)]
        assert len(family) == 2
        own = processes.read_memory_bytes(family[1])
        assert 0 < own < processes.read_memory_bytes(family[0])
        (child,) = map(os.pidfd_open, family[1:])
    has_ended, _, _ = select.select([child], [], [], _END_LIMIT_S)
    os.close(child)
    assert has_ended
