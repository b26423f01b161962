import os
from pathlib import Path

import pytest

from aspira.cpus import count_cpus

NUM_CPUS = 16
V2 = "0::/pods/one\n"
V1 = "9:memory:/pods/one\n4:cpu,cpuacct:/pods/one\n0::/elsewhere\n"


@pytest.fixture(autouse=True)
def _many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(NUM_CPUS)))


def count(root: Path, *, membership: str, files: dict[str, str]) -> int:
    (root / "membership").write_text(membership)
    for name, text in files.items():
        file = root / "cgroups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return count_cpus(cgroups=root / "cgroups", membership=root / "membership")


@pytest.mark.parametrize(
    ("files", "num_cpus"),
    [
        ({"pods/one/cpu.max": "200000 100000"}, 2),
        ({"pods/one/cpu.max": "150000 100000"}, 2),
        ({"pods/one/cpu.max": "10000 100000"}, 1),
        ({"pods/one/cpu.max": "max 100000"}, NUM_CPUS),
        ({"pods/one/cpu.max": "6400000 100000"}, NUM_CPUS),
        # The outer group's quota is for all within it.
        ({"pods/one/cpu.max": "max 100000", "pods/cpu.max": "300000 100000"}, 3),
        ({"pods/one/cpu.max": "200000 50000", "pods/cpu.max": "500000 100000"}, 4),
        # Within a container: the host's path is not there.
        ({"cpu.max": "400000 100000"}, 4),
        ({"pods/two/cpu.max": "100000 100000"}, NUM_CPUS),
        ({}, NUM_CPUS),
    ],
)
def test_version_2(tmp_path: Path, files: dict[str, str], num_cpus: int) -> None:
    assert count(tmp_path, membership=V2, files=files) == num_cpus


@pytest.mark.parametrize(
    ("group", "quota", "num_cpus"),
    [
        ("cpu,cpuacct/pods/one", "250000", 3),
        ("cpu,cpuacct/pods/one", "-1", NUM_CPUS),
        ("cpu,cpuacct", "100000", 1),
        ("memory/pods/one", "100000", NUM_CPUS),
    ],
)
def test_version_1(tmp_path: Path, group: str, quota: str, num_cpus: int) -> None:
    files = {f"{group}/cpu.cfs_quota_us": quota, f"{group}/cpu.cfs_period_us": "100000"}
    assert count(tmp_path, membership=V1, files=files) == num_cpus


def test_without_control_groups(tmp_path: Path) -> None:
    assert count_cpus(cgroups=tmp_path, membership=tmp_path / "absent") == NUM_CPUS


def test_here() -> None:
    assert 1 <= count_cpus() <= NUM_CPUS
