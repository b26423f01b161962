"""The end of a drain, against an admin interface that says what the test makes it say."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aspira.frontends.listeners import envoy_admin
from aspira.frontends.listeners.envoy_admin import EnvoyAdmin

PATIENCE_S = 20.0


class Admin:
    """Answers with the statistics of the moment; the last ones for ever."""

    def __init__(self, *statistics: tuple[int, int, int]) -> None:
        self._statistics = list(statistics)
        self.targets: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        self.targets.append(target)
        if target.startswith("/stats"):
            total, requests, connections = self._statistics[0]
            if len(self._statistics) > 1:
                del self._statistics[0]
            writer.write(
                f"http.aspira.downstream_rq_total: {total}\n"
                f"http.aspira.downstream_rq_active: {requests}\n"
                f"http.aspira.downstream_cx_active: {connections}\n".encode()
            )
        writer.close()


def play(
    admin: Admin, *, path: Path, scenario: Callable[[EnvoyAdmin], Awaitable[None]]
) -> list[str]:
    async def act() -> None:
        server = await asyncio.start_unix_server(admin.serve, path)
        async with server:
            await asyncio.wait_for(scenario(EnvoyAdmin(path)), PATIENCE_S)

    asyncio.run(act())
    return [target for target in admin.targets if target.startswith("/stats")]


@pytest.fixture
def _hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait within a test is long enough to count as quiet."""
    for name in ("_QUIET_S", "_MAX_WAIT_S", "_PAUSE_S", "_MAX_WAIT_FOR_PAUSE_S"):
        monkeypatch.setattr(envoy_admin, name, 3600.0)


@pytest.mark.usefixtures("_hours")
def test_a_drain_ends_when_the_last_connection_has_left(tmp_path: Path) -> None:
    admin = Admin((5, 0, 0), (5, 1, 2), (6, 1, 2), (6, 0, 1), (6, 0, 1), (6, 0, 0))
    asked = play(admin, path=tmp_path / "admin.sock", scenario=EnvoyAdmin.end_drain)
    assert admin.targets[1] == "/drain_listeners"
    assert len(asked) == 6


@pytest.mark.usefixtures("_hours")
def test_ports_close_in_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envoy_admin, "_PAUSE_S", 0.0)
    admin = Admin((5, 1, 2), (6, 2, 3), (8, 0, 2), (8, 0, 0))
    play(admin, path=tmp_path / "admin.sock", scenario=EnvoyAdmin.end_drain)
    assert admin.targets.index("/drain_listeners") == 3


def test_ports_close_though_there_is_no_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envoy_admin, "_MAX_WAIT_FOR_PAUSE_S", 0.0)
    admin = Admin((5, 1, 2), (6, 0, 0))
    play(admin, path=tmp_path / "admin.sock", scenario=EnvoyAdmin.end_drain)
    assert admin.targets.index("/drain_listeners") == 1


def test_idle_connections_are_given_up_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envoy_admin, "_QUIET_S", 0.0)
    monkeypatch.setattr(envoy_admin, "_MAX_WAIT_FOR_PAUSE_S", 0.0)
    admin = Admin((5, 1, 3), (5, 1, 3), (6, 0, 3))
    asked = play(admin, path=tmp_path / "admin.sock", scenario=EnvoyAdmin.end_drain)
    assert len(asked) == 3


def test_an_admin_interface_that_is_gone_ends_the_drain(tmp_path: Path) -> None:
    async def act() -> None:
        await asyncio.wait_for(EnvoyAdmin(tmp_path / "none").end_drain(), PATIENCE_S)

    asyncio.run(act())
