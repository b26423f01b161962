"""What is installed for a peer is pinned, and what pip says when it cannot be is kept."""

import re
from collections.abc import Callable
from types import ModuleType

import pytest

PIN = re.compile(r"[a-z0-9._-]+==[0-9][A-Za-z0-9.+]*")


@pytest.fixture
def environments(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("peer_environments")


def test_every_peer_has_pinned_packages_and_a_serving_file(
    environments: ModuleType, import_benchmark: Callable[[str], ModuleType]
) -> None:
    names = [subject.name for subject in import_benchmark("peers_plan").SUBJECTS]
    assert len(names) == len(set(names)) == 8
    for name in names:
        directory = environments.PEERS / name
        assert (directory / "serve.py").is_file()
        lines = (directory / "requirements.txt").read_text().split()
        assert lines == sorted(lines)
        assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_every_token_engine_has_pinned_packages(
    environments: ModuleType, import_benchmark: Callable[[str], ModuleType]
) -> None:
    packages = import_benchmark("tokens.plan").PEER_PACKAGES
    assert len(packages) == 4
    for name, package in packages.items():
        lines = (environments.PEERS / name / "requirements.txt").read_text().split()
        assert lines == sorted(lines)
        assert [line for line in lines if not PIN.fullmatch(line)] == []
        assert environments.read_pin(name, package=package)


def test_a_pin_is_read(environments: ModuleType) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", environments.read_pin("mosec", package="mosec"))
    with pytest.raises(KeyError):
        environments.read_pin("mosec", package="tensorflow")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("Collecting x\nERROR: No version of x\nERROR: No x found\n", "No version of x"),
        ("Collecting x\n  OSError: no space left\n\n", "OSError: no space left"),
        ("", "it said nothing"),
    ],
)
def test_what_pip_says(environments: ModuleType, output: str, reason: str) -> None:
    assert environments.shorten_pip_output(output) == reason
