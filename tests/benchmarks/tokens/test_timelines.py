"""Rates, percentiles and arrivals of streamed answers."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def timelines(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("tokens.timelines")


def answered(
    timelines: ModuleType, *texts_at: float, asked_at: float = 0.0, tokens: int = 0
) -> Any:
    ended_at = texts_at[-1] if texts_at else asked_at
    return timelines.Timeline(asked_at, texts_at, ended_at, tokens or len(texts_at))


def test_figures_of_answers(timelines: ModuleType) -> None:
    first = answered(timelines, 0.5, 0.6, 0.8)
    second = answered(timelines, 1.5, 2.0, asked_at=1.0, tokens=5)
    figures = timelines.summarize([first, second])
    assert figures.tokens_per_s == pytest.approx(8 / 2.0)
    assert figures.first_token.p50 == pytest.approx(500)
    assert figures.gap.p50 == pytest.approx(200)
    assert figures.gap.longest == pytest.approx(500)
    assert figures.total.longest == pytest.approx(1000)
    assert figures.tokens_per_event == pytest.approx(8 / 5)
    assert (figures.num_requests, figures.num_failed) == (2, 0)


def test_failed_requests_count_and_add_no_tokens(timelines: ModuleType) -> None:
    good = answered(timelines, 1.0, 2.0)
    broken = answered(timelines, 1.0, 9.0)._replace(error="the answer broke off")
    silent = answered(timelines)
    figures = timelines.summarize([good, broken, silent])
    assert figures.tokens_per_s == pytest.approx(1.0)
    assert (figures.num_requests, figures.num_failed) == (3, 2)


def test_without_answers_the_errors_are_told(timelines: ModuleType) -> None:
    broken = answered(timelines)._replace(error="status 500: oh")
    with pytest.raises(timelines.NothingAnsweredError, match="an answer without text; status 500"):
        timelines.summarize([broken, answered(timelines)])


def test_percentiles(timelines: ModuleType) -> None:
    found = timelines.latencies(second / 1000 for second in range(101))
    assert (found.p50, found.p95, found.p99, found.longest) == pytest.approx((50, 95, 99, 100))
    assert timelines.latencies([]) == timelines.Latencies(0.0, 0.0, 0.0, 0.0)


def test_gaps_beside_another_request(timelines: ModuleType) -> None:
    stream = answered(timelines, 1.0, 1.5, 2.5, 4.0)
    long = answered(timelines, 3.0, 3.1, asked_at=1.2)
    assert timelines.gaps_within(stream, during=long) == pytest.approx([0.5, 1.0])
    assert timelines.gaps_within(stream, during=answered(timelines)) == []


def test_arrivals_at_random_have_the_rate_and_are_the_same_each_time(timelines: ModuleType) -> None:
    arrivals = timelines.poisson_arrivals(2000, rate_per_s=4.0, seed=1)
    assert arrivals == timelines.poisson_arrivals(2000, rate_per_s=4.0, seed=1)
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    assert len(arrivals) / arrivals[-1] == pytest.approx(4.0, rel=0.1)
