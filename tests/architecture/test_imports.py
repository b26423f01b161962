"""Who may import whom: the floors, no cycles, and a command line that starts without frameworks."""

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
HEAVY_PACKAGES = ("tensorflow", "numpy", "grpc")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def find_cycle(imports: dict[str, set[str]]) -> list[str]:
    """The modules of one cycle, its first repeated at the end; empty if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_packages_import_only_from_floors_below() -> None:
    checked = run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_modules_import_each_other() -> None:
    graph = grimp.build_graph("aspira", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert any(imports.values())
    assert find_cycle(imports) == []


def test_a_cycle_would_be_found() -> None:
    assert sorted(set(find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}))) == ["a", "b", "c"]


@pytest.mark.skipif(
    not (ROOT / "src/aspira/cli/main.py").exists(), reason="there is no command line yet"
)
def test_the_command_line_starts_without_frameworks() -> None:
    code = (
        "import sys; import aspira.cli.main; "
        f"print([name for name in {HEAVY_PACKAGES} if name in sys.modules])"
    )
    started = run(sys.executable, "-c", code)
    assert started.returncode == 0, started.stderr
    assert started.stdout == "[]\n"
