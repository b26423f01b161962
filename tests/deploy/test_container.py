"""The image's entrypoint, run with a stand-in for the server, and what its Dockerfile names."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINER = ROOT / "deploy" / "container"
ENTRYPOINT = CONTAINER / "entrypoint.sh"
STAND_IN = """\
#!/bin/sh
echo $$
for argument in "$@"; do echo "$argument"; done
"""


def dockerfile() -> str:
    """Its instructions, one a line."""
    return (CONTAINER / "Dockerfile").read_text().replace("\\\n", " ")


def image_environment() -> dict[str, str]:
    (line,) = re.findall(r"^ENV (.*)$", dockerfile(), re.MULTILINE)
    return dict(pair.split("=", 1) for pair in line.split())


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A directory for PATH with a server that says its process id and its arguments."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "tensorflow_model_server"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    return directory


def run_entrypoint(
    *arguments: str, commands: Path, environment: dict[str, str]
) -> tuple[bool, list[str]]:
    """Whether the server took the place of the shell, and the server's arguments."""
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        [str(ENTRYPOINT), *arguments],
        env={"PATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        pid, *given = process.communicate(timeout=30)[0].splitlines()
        assert process.returncode == 0
        return int(pid) == process.pid, given


def test_one_model_is_served_by_the_images_defaults(commands: Path) -> None:
    assert run_entrypoint(commands=commands, environment=image_environment()) == (
        True,
        [
            "--port=8500",
            "--rest_api_port=8501",
            "--model_name=model",
            "--model_base_path=/models/model",
        ],
    )


def test_variables_choose_the_model_and_arguments_come_last(commands: Path) -> None:
    environment = image_environment() | {"MODEL_NAME": "my model", "MODEL_BASE_PATH": "/some where"}
    arguments = ("--rest_api_port=9", "--grpc_channel_arguments=a=1,b=2", "two words")
    is_replaced, given = run_entrypoint(*arguments, commands=commands, environment=environment)
    assert is_replaced
    assert given == [
        "--port=8500",
        "--rest_api_port=8501",
        "--model_name=my model",
        "--model_base_path=/some where/my model",
        *arguments,
    ]


def test_a_variable_opens_the_admin_port_and_an_argument_wins(commands: Path) -> None:
    environment = image_environment() | {"ADMIN_PORT": "8502"}
    _, given = run_entrypoint("--admin_port=9", commands=commands, environment=environment)
    assert given[-2:] == ["--admin_port=8502", "--admin_port=9"]
    _, given = run_entrypoint(commands=commands, environment=environment | {"ADMIN_PORT": ""})
    assert not any("admin" in argument for argument in given)


def test_the_image_is_made_of_files_that_are_there() -> None:
    copied = [
        source
        for line in re.findall(r"^COPY (?:--\S+ )?(.*) \S+$", dockerfile(), re.MULTILINE)
        for source in line.split()
    ]
    assert "src" in copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    kept = (CONTAINER / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} == {line for line in kept if line.startswith("!")}


def test_the_image_opens_the_ports_that_the_entrypoint_names() -> None:
    (ports,) = re.findall(r"^EXPOSE (.*)$", dockerfile(), re.MULTILINE)
    text = ENTRYPOINT.read_text()
    assert re.findall(r"port=(\d+)", text) == ports.split()
