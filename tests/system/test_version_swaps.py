"""Versions come and go under load: nobody is refused, nothing is mixed, no memory is lost."""

import shutil
import signal
from pathlib import Path

import pytest
import requests

from aspira.testing.saved_models import write_half_plus_two
from system.load import Load
from system.server_process import ServerProcess, free_ports

NUM_SWAPS = 50
NUM_CLIENTS = 64
MAX_GROWTH_BYTES = 40 * 2**20


@pytest.fixture(scope="session")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 1 to 51 of a model that adds its version."""
    directory = tmp_path_factory.mktemp("versions")
    for version in range(1, NUM_SWAPS + 2):
        write_half_plus_two(directory / str(version), offset=float(version))
    return directory


def publish(version: int, *, versions: Path, base_path: Path) -> None:
    """Show a version to the server all at once."""
    shutil.copytree(versions / str(version), base_path / f"{version}.partial")
    (base_path / f"{version}.partial").rename(base_path / str(version))


def look_now(admin_port: int) -> None:
    """Have the server look at its directories without waiting for the next poll."""
    url = f"http://127.0.0.1:{admin_port}/v1/config:reload"
    requests.post(url, timeout=60).raise_for_status()


def wait_serving_only(server: ServerProcess, version: int) -> None:
    """Until this version is available and every other one has ended."""
    while True:
        url = f"{server.rest_url}/v1/models/default"
        entries = requests.get(url, timeout=30).json()["model_version_status"]
        states = {int(entry["version"]): entry["state"] for entry in entries}
        if states.pop(version, "") == "AVAILABLE" and set(states.values()) <= {"END"}:
            return


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_fifty_swaps_under_load_then_sigterm(versions: Path, tmp_path: Path) -> None:
    base_path = tmp_path / "model"
    base_path.mkdir()
    publish(1, versions=versions, base_path=base_path)
    resident = {}
    (admin_port,) = free_ports(1)
    flags = (f"--model_base_path={base_path}", f"--admin_port={admin_port}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        load = Load(server)
        with load.running(NUM_CLIENTS):
            for version in range(2, NUM_SWAPS + 2):
                publish(version, versions=versions, base_path=base_path)
                look_now(admin_port)
                wait_serving_only(server, version)
                shutil.rmtree(base_path / str(version - 1))
                resident[version] = server.resident_bytes()
            load.wait_for_answers(NUM_CLIENTS)
            assert load.seen.failures == []
            load.may_refuse.set()
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        assert load.seen.failures == []
        assert load.seen.answers.keys() >= {float(version) for version in range(2, NUM_SWAPS + 2)}
        assert load.seen.num_refused == NUM_CLIENTS
    assert resident[NUM_SWAPS + 1] - resident[11] < MAX_GROWTH_BYTES, resident


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_broken_version_leaves_the_old_one_serving(
    listener: str, versions: Path, tmp_path: Path
) -> None:
    base_path = tmp_path / "model"
    base_path.mkdir()
    publish(1, versions=versions, base_path=base_path)
    flags = ("--max_num_load_retries=1", "--load_retry_interval_micros=0")
    with ServerProcess(
        f"--listener={listener}", f"--model_base_path={base_path}", *flags, log=tmp_path / "log"
    ) as server:
        (base_path / "2").mkdir()
        assert server.wait_for_line("Servable {name: default version: 2} cannot be loaded")
        url = f"{server.rest_url}/v1/models/default"
        broken, serving = requests.get(url, timeout=30).json()["model_version_status"]
        assert (broken["version"], broken["state"]) == ("2", "END")
        assert broken["status"]["error_code"] == "NOT_FOUND"
        assert "does not appear to contain a SavedModel" in broken["status"]["error_message"]
        assert (serving["version"], serving["state"]) == ("1", "AVAILABLE")
        answer = requests.post(f"{url}:predict", json={"instances": [0.0]}, timeout=30)
        assert answer.json() == {"predictions": [1.0]}
        publish(3, versions=versions, base_path=base_path)
        wait_serving_only(server, 3)


@pytest.mark.parametrize("marker", ["", "_READY"])
def test_a_version_that_is_written_in_place_is_loaded_once_it_is_whole(
    marker: str, versions: Path, tmp_path: Path
) -> None:
    base_path = tmp_path / "model"
    base_path.mkdir()
    publish(1, versions=versions, base_path=base_path)
    (base_path / "1" / "_READY").touch()
    flags = (f"--model_base_path={base_path}", f"--version_ready_marker={marker}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        (base_path / "2").mkdir()
        shutil.copyfile(versions / "2" / "saved_model.pb", base_path / "2" / "saved_model.pb")
        assert server.wait_for_line("Not loading servable version {name: default version: 2}: it")
        (base_path / "2" / "variables").mkdir()
        for file in (versions / "2" / "variables").iterdir():
            shutil.copyfile(file, base_path / "2" / "variables" / file.name)
        if marker:
            (base_path / "2" / marker).touch()
        wait_serving_only(server, 2)
        assert " failed: " not in server.output()


def test_a_model_directory_that_vanishes_unloads_nothing(versions: Path, tmp_path: Path) -> None:
    base_path = tmp_path / "model"
    base_path.mkdir()
    publish(1, versions=versions, base_path=base_path)
    with ServerProcess(f"--model_base_path={base_path}", log=tmp_path / "log") as server:
        base_path.rename(tmp_path / "elsewhere")
        assert server.wait_for_line("Could not find base path")
        url = f"{server.rest_url}/v1/models/default:predict"
        answer = requests.post(url, json={"instances": [0.0]}, timeout=30)
        assert answer.json() == {"predictions": [1.0]}
