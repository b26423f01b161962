"""Whatever becomes of server processes, there is one at a time. (`tests/system` has real ones.)"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aspira.cli import supervisor
from aspira.cli.supervisor import Supervisor
from aspira.contracts.errors import InvalidArgument, ServingError
from aspira.frontends.listeners.envoy import EnvoyCommand, EnvoyServer
from aspira.settings import Settings

KILLED = -9


@dataclass
class ScriptedServer:
    """A process that refuses to start, dies once it is up, or serves until it is killed."""

    refusal: ServingError | None = None
    dies: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    num_killed: int = 0

    async def wait_listening(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def wait_ended(self) -> int:
        if not self.dies:
            await self.ended.wait()
        return KILLED

    async def kill(self) -> None:
        self.num_killed += 1
        self.ended.set()


@dataclass
class Host:
    """Hands out scripted processes, each only after those before it have been let go of."""

    script: list[ScriptedServer]
    directory: Path
    started: list[ScriptedServer] = field(default_factory=list)

    async def start(self, _command: EnvoyCommand, *, directory: Path) -> ScriptedServer:
        assert directory == self.directory
        assert all(server.num_killed == 1 for server in self.started)
        self.started.append(self.script[len(self.started)])
        return self.started[-1]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_command(*_: object, **__: object) -> EnvoyCommand:
        config_file = tmp_path / "envoy.json"
        config_file.touch()
        return EnvoyCommand((), {}, config_file)

    monkeypatch.setattr(supervisor, "make_command", make_command)
    monkeypatch.setattr(supervisor, "_FIRST_BACKOFF_S", 0.0)


@pytest.mark.usefixtures("command")
def test_a_process_that_dies_or_refuses_to_start_again_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        ScriptedServer(dies=True),
        ScriptedServer(InvalidArgument("the file is damaged")),
        ScriptedServer(InvalidArgument("the file is damaged")),
        ScriptedServer(),
    ]
    host = Host(script, tmp_path)
    monkeypatch.setattr(EnvoyServer, "start", host.start)
    lines: list[str] = []
    monkeypatch.setattr(supervisor, "say", lambda line, **_: lines.append(line))

    async def run() -> None:
        served = asyncio.Semaphore(0)
        process = Supervisor(Settings(), directory=tmp_path, tls=None)
        running = asyncio.ensure_future(process.run(served.release))
        for _ in range(2):
            await served.acquire()
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(run())
    assert host.started == script
    assert [server.num_killed for server in script] == [1] * len(script)
    assert [line.partition(";")[0] for line in lines] == [
        "The server process died (signal 9)",
        *["The server did not start again: INVALID_ARGUMENT: the file is damaged"] * 2,
    ]
