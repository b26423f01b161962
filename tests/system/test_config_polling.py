"""The model config file, edited while servers look at it, over both listeners."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from aspira.testing.saved_models import write_half_plus_two
from system.server_process import ServerProcess

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, of one version each."""
    directory = tmp_path_factory.mktemp("models")
    for name in ("first", "second"):
        write_half_plus_two(directory / name / "1")
    return directory


@pytest.fixture(params=["envoy", "portable"])
def server(request: pytest.FixtureRequest, models: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the first model that looks every second for another config."""
    config = tmp_path / "models.config"
    write_config(config, text=entries("first", models=models))
    with ServerProcess(
        f"--listener={request.param}",
        f"--model_config_file={config}",
        "--model_config_file_poll_wait_seconds=1",
        log=tmp_path / "log",
    ) as running:
        yield running


def entries(*names: str, models: Path, fields: str = "") -> str:
    listed = (
        f"config {{ name: '{name}' base_path: '{models / name}' "
        f"model_platform: 'tensorflow' {fields} }}"
        for name in names
    )
    return f"model_config_list {{ {' '.join(listed)} }}"


def write_config(file: Path, *, text: str) -> None:
    """As careful people do, so that nobody reads half of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)  # noqa: PTH105 - the name of what it does


def status_of(server: ServerProcess, *, model: str) -> int:
    url = f"{server.rest_url}/v1/models/{model}:predict"
    return requests.post(url, json={"instances": [1.0]}, timeout=TIMEOUT_S).status_code


def test_models_come_and_go_with_the_file(
    server: ServerProcess, models: Path, tmp_path: Path
) -> None:
    config = tmp_path / "models.config"
    assert status_of(server, model="second") == 404
    write_config(config, text=entries("first", "second", models=models))
    assert server.wait_for_line("Successfully loaded servable version {name: second version: 1}")
    assert status_of(server, model="first") == status_of(server, model="second") == 200
    write_config(config, text=entries("second", models=models))
    assert server.wait_for_line("Done unloading servable version {name: first version: 1}")
    assert status_of(server, model="first") == 404
    assert status_of(server, model="second") == 200


def test_a_bad_file_is_told_and_changes_nothing_until_it_is_repaired(
    server: ServerProcess, models: Path, tmp_path: Path
) -> None:
    config = tmp_path / "models.config"
    write_config(config, text="model_config_list {\n  config { nam: 'm' }\n}")
    assert server.wait_for_line(
        f"Failed to read ModelServerConfig file: Invalid protobuf file: '{config}': Error parsing "
        "text-format tensorflow.serving.ModelServerConfig: 2:12"
    )
    assert status_of(server, model="first") == 200
    label = "version_labels { key: 'stable' value: 7 }"
    write_config(config, text=entries("first", models=models, fields=label))
    assert server.wait_for_line(
        "PollFilesystemAndReloadConfig failed to ReloadConfig: Request to assign label to version "
        "7 of model first, which is not currently available for inference"
    )
    assert status_of(server, model="first") == 200
    write_config(config, text=entries("first", "second", models=models))
    assert server.wait_for_line("Successfully loaded servable version {name: second version: 1}")
    assert status_of(server, model="second") == 200


def test_a_server_that_looks_at_its_file_ends_in_order(server: ServerProcess) -> None:
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert server.output().endswith(" I aspira/server] Stopped.\n")


def test_every_line_has_its_time_and_says_how_bad_it_is(
    server: ServerProcess, models: Path, tmp_path: Path
) -> None:
    config = tmp_path / "models.config"
    write_config(config, text="nonsense")
    assert server.wait_for_line("E aspira/service/config_watch] Failed to read ModelServerConfig")
    write_config(config, text=entries("first", models=models))
    assert server.wait_for_line("I aspira/service/config_watch] The model config file")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    lines = server.output().splitlines()
    # Those of TensorFlow's C++ have a form of their own, with as much in it.
    ours = [line for line in lines if not re.match("WARNING: All log messages|[IWE]0000 ", line)]
    form = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWE] aspira/[a-z_/]+\] .")
    assert [line for line in ours if not form.match(line)] == []
