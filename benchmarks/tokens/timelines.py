"""When the tokens of streamed answers arrived, and what that comes to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np


class Timeline(NamedTuple):
    """One request. Times are seconds on one clock."""

    asked_at: float
    texts_at: tuple[float, ...]
    """When each event with text arrived. An event may bring more than one token, or less."""

    ended_at: float
    num_tokens: int
    """As the server counted them; where it did not, events with text."""

    error: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Latencies:
    """In milliseconds."""

    p50: float
    p95: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """What clients saw of one load."""

    num_requests: int
    num_failed: int
    tokens_per_s: float
    """From the first request to the last token, failed requests left out."""

    first_token: Latencies
    gap: Latencies
    """Between two events with text of one answer: what a reader waits for more."""

    total: Latencies
    tokens_per_event: float


class NothingAnsweredError(Exception):
    """There are no figures: the text says what the requests met."""


def summarize(timelines: Sequence[Timeline]) -> TokenFigures:
    """The figures of those that were answered.

    Raises:
        NothingAnsweredError: none was, with text.
    """
    good = [timeline for timeline in timelines if not timeline.error and timeline.texts_at]
    if not good:
        errors = sorted({timeline.error or "an answer without text" for timeline in timelines})
        raise NothingAnsweredError("; ".join(errors)[:200] or "there were no requests")
    began = min(timeline.asked_at for timeline in good)
    ended = max(timeline.texts_at[-1] for timeline in good)
    num_tokens = sum(timeline.num_tokens for timeline in good)
    return TokenFigures(
        num_requests=len(timelines),
        num_failed=len(timelines) - len(good),
        tokens_per_s=num_tokens / (ended - began),
        first_token=latencies(timeline.texts_at[0] - timeline.asked_at for timeline in good),
        gap=latencies(gap for timeline in good for gap in gaps(timeline)),
        total=latencies(timeline.ended_at - timeline.asked_at for timeline in good),
        tokens_per_event=num_tokens / sum(len(timeline.texts_at) for timeline in good),
    )


def gaps(timeline: Timeline) -> list[float]:
    """Seconds between one text and the next."""
    return [after - before for before, after in pairwise(timeline.texts_at)]


def gaps_within(timeline: Timeline, *, during: Timeline) -> list[float]:
    """Those gaps that ended between another request and its first text."""
    if not during.texts_at:
        return []
    begin, end = during.asked_at, during.texts_at[0]
    ends = timeline.texts_at[1:]
    return [gap for gap, at in zip(gaps(timeline), ends, strict=True) if begin <= at <= end]


def latencies(seconds: Iterable[float]) -> Latencies:
    """Percentiles, interpolated; zeros where there is nothing."""
    values_ms = np.fromiter(seconds, np.float64) * 1e3
    if not len(values_ms):
        return Latencies(0.0, 0.0, 0.0, 0.0)
    p50, p95, p99, longest = np.percentile(values_ms, (50, 95, 99, 100)).tolist()
    return Latencies(p50, p95, p99, longest)


def poisson_arrivals(count: int, *, rate_per_s: float, seed: int) -> list[float]:
    """When requests come that know nothing of each other: seconds from the beginning."""
    waits = np.random.default_rng(seed).exponential(1 / rate_per_s, count)
    return [float(at) for at in np.cumsum(waits) - waits[0]]
