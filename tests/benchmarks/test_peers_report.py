"""The page and the plot say what was measured: who is ahead, what did not run."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

FACTS = {"date": "2026-11-30", "cores": "2"}
REST = "half_plus_two/rest"


@pytest.fixture
def report(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("peers_report")


@pytest.fixture
def make_run(
    report: ModuleType, import_benchmark: Callable[[str], ModuleType]
) -> Callable[..., Any]:
    """A run with rates and p99 by key, or errors."""
    serving, plan = import_benchmark("serving"), import_benchmark("peers_plan")

    def make(
        measured: dict[str, tuple[float, float]],
        errors: dict[str, str] | None = None,
        absent: dict[str, str] | None = None,
    ) -> Any:
        records = [
            serving.Record(
                key, 1, requests_per_s=rate, p50_ms=p99_ms / 2, p99_ms=p99_ms, memory_mib=100
            )
            for key, (rate, p99_ms) in measured.items()
        ]
        records += [serving.Record(key, 1, error=text) for key, text in (errors or {}).items()]
        return report.Run(
            figures=report.Figures(records),
            aspiras=(plan.Aspira("Aspira"), plan.Aspira("Aspira, batching", ("--b=1",))),
            versions={"mosec": "0.9.8", "fastapi": "0.165.0"},
            absent=absent or {},
            facts=FACTS,
            how="Medians of 1 round of 2 s.",
        )

    return make


def test_the_fastest_comes_first(report: ModuleType, make_run: Callable[..., Any]) -> None:
    run = make_run(
        {f"{REST}/aspira": (200, 3), f"{REST}/mosec": (300, 4), f"{REST}/fastapi": (100, 9)}
    )
    titles = [row.contender.title for row in run.rank(report.GROUPS[0])]
    assert titles == ["mosec", "Aspira", "FastAPI"]
    page = report.format_page(run)
    assert "| mosec | 300 | - | 2.00 | 4.00 | 0 | 100 | x 1.50 |" in page
    assert "| **Aspira** | 200 | - | 1.50 | 3.00 | 0 | 100 | x 1.00 |" in page


def test_defeats_are_those_of_the_best_aspira(
    report: ModuleType, make_run: Callable[..., Any]
) -> None:
    run = make_run(
        {
            f"{REST}/aspira": (200, 5),
            f"{REST}/aspira,_batching": (400, 8),
            f"{REST}/mosec": (600, 6),
            f"{REST}/fastapi": (300, 4),
        }
    )
    first, second = report.list_defeats(run)
    assert first.endswith("mosec answers 1.50 times as many requests")
    assert second.endswith("FastAPI has 0.80 times the p99")
    assert first in report.format_page(run)


def test_no_defeat(report: ModuleType, make_run: Callable[..., Any]) -> None:
    run = make_run({f"{REST}/aspira": (200, 5), f"{REST}/mosec": (100, 6)})
    assert report.list_defeats(run) == []
    assert "Nowhere, of the small models in this run." in report.format_page(run)


def test_large_models_are_no_defeat(report: ModuleType, make_run: Callable[..., Any]) -> None:
    run = make_run({"mobilenet/binary/aspira": (1, 9), "mobilenet/binary/mosec": (2, 8)})
    assert report.list_defeats(run) == []


def test_what_did_not_run_is_named_once(report: ModuleType, make_run: Callable[..., Any]) -> None:
    run = make_run(
        {f"{REST}/aspira": (200, 5)},
        errors={f"{REST}/mosec": "mosec did not start: status 1"},
        absent={"Ray Serve": "cannot be installed: no wheel"},
    )
    page = report.format_page(run)
    assert "- Ray Serve: cannot be installed: no wheel" in page
    assert page.count("mosec did not start: status 1") == 1


def test_bars_are_as_long_as_rates(
    import_benchmark: Callable[[str], ModuleType], make_run: Callable[..., Any]
) -> None:
    run = make_run({f"{REST}/aspira": (200, 5), f"{REST}/mosec": (100, 6)})
    root = ElementTree.fromstring(import_benchmark("peers_plot").draw_rates(run))
    space = "{http://www.w3.org/2000/svg}"
    _, ours, theirs = root.iter(f"{space}rect")
    assert float(ours.attrib["width"]) == pytest.approx(2 * float(theirs.attrib["width"]))
    labels = [text.text for text in root.iter(f"{space}text")]
    assert "Aspira" in labels
    assert "200, p99 5.0 ms" in labels
