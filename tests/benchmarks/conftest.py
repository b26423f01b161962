"""The benchmarks are programs that find their modules by bare names, and so do their tests."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

ImportBenchmark = Callable[[str], ModuleType]


@pytest.fixture
def import_benchmark(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImportBenchmark]:
    """Imports one of the benchmarks' modules; afterwards they are as if never imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    known = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]
