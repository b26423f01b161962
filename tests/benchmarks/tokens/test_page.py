"""The page: what was wanted is judged by this run's figures, and what is missing is named."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

FACTS = {"date": "2026-01-01", "CPU": "a CPU"}


@pytest.fixture
def page(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("tokens.page")


@pytest.fixture
def records(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("tokens.records")


def make_run(page: ModuleType, records: ModuleType, *found: Any, **more: Any) -> Any:
    fields = {"agreements": {}, "checks": records.Checks(), "absent": {}, "versions": {}, **more}
    return page.Run(
        records=records.Records(found), facts=FACTS, num_rounds=2, num_output_tokens=128, **fields
    )


def rate(
    records: ModuleType, name: str, *, number: int, rate: float, others_cpus: float = 0.0
) -> Any:
    return records.Record(name, "thirty_two", number, tokens_per_s=rate, others_cpus=others_cpus)


def verdicts(page: ModuleType, run: Any) -> dict[str, tuple[str, bool | None]]:
    return {line.title: (line.found, line.is_met) for line in page.judge(run)}


def test_ratios_are_of_the_same_round(page: ModuleType, records: ModuleType) -> None:
    run = make_run(
        page,
        records,
        rate(records, "aspira", number=1, rate=100),
        rate(records, "genai", number=1, rate=80),
        rate(records, "aspira", number=2, rate=300),
        rate(records, "genai", number=2, rate=400),
        rate(records, "vllm", number=1, rate=80),
    )
    found = verdicts(page, run)
    assert found["32 streams, tokens/s over openvino-genai's"] == ("1.00", True)
    assert found["32 streams, tokens/s over vLLM's"] == ("1.25", False)
    assert found["1 stream, the same"] == ("-", None)


def test_failures_are_no_figures(page: ModuleType, records: ModuleType) -> None:
    failed = records.Record("vllm", "thirty_two", 1, error="it ended")
    run = make_run(page, records, rate(records, "aspira", number=1, rate=100), failed)
    assert verdicts(page, run)["32 streams, tokens/s over vLLM's"] == ("-", None)
    assert "- vllm, thirty_two, round 1: it ended" in page.format_page(run)


def test_disturbed_figures_count_only_where_there_is_no_quiet_one(
    page: ModuleType, records: ModuleType
) -> None:
    run = make_run(
        page,
        records,
        rate(records, "aspira", number=1, rate=100),
        rate(records, "aspira", number=2, rate=10, others_cpus=0.5),
        rate(records, "vllm", number=1, rate=50, others_cpus=0.5),
    )
    assert verdicts(page, run)["32 streams, tokens/s over vLLM's"] == ("2.00", True)
    text = page.format_page(run)
    assert "| **Aspira** | 100 |" in text
    assert "| vLLM | 50* |" in text
    assert "as in 2 measurements" in text


def test_gaps_are_held_against_steps(page: ModuleType, records: ModuleType) -> None:
    latencies = records.Latencies(20, 40, 80, 100)
    run = make_run(
        page,
        records,
        records.Record("aspira", "sixteen", 1, tokens_per_s=1, gap=latencies),
        records.Record("aspira_bare", "sixteen", 1, tokens_per_s=1, step_ms=25),
        checks=records.Checks(
            cached_first_token_ms=(10, 11, 90),
            uncached_first_token_ms=(66,),
            arrival_gap=latencies,
            arrival_chunk_ms=60,
            arrival_step_ms=10,
            cache_on_s=(2.0, 9.0, 3.0),
            cache_off_s=(2.0, 3.0, 3.0),
        ),
    )
    found = verdicts(page, run)
    assert found["16 streams, p95 gap over the bare engine's step"] == ("1.60", False)
    assert found["first token of 1,000, 900 of them known: times sooner"] == ("6.00", True)
    assert found["CPU time with the prefix cache on and no hit over off"] == ("1.00", True)
    arrival = "p99 gap of others as a longest prompt comes, over a chunk and a step"
    assert found[arrival] == ("1.14", False)


def test_the_page_ranks_and_names_what_is_absent(page: ModuleType, records: ModuleType) -> None:
    run = make_run(
        page,
        records,
        rate(records, "vllm", number=1, rate=1200),
        rate(records, "aspira", number=1, rate=1500),
        absent={"llamacpp": "cannot be installed: no wheel"},
        versions={"vllm": "1.2.3"},
    )
    text = page.format_page(run)
    assert text.index("| **Aspira** | 1,500 |") < text.index("| vLLM | 1,200 |")
    assert "vLLM 1.2.3" in text
    assert "- llama.cpp: cannot be installed: no wheel" in text
