import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from aspira.observability.metrics import (
    MAX_LABEL_LENGTH,
    MAX_NUM_SERIES,
    OTHER,
    Counter,
    Gauge,
    Histogram,
    exponential_bounds,
)


def test_bounds_grow_by_the_factor() -> None:
    assert exponential_bounds(1.0, growth=2.0, num_bounds=5) == (1.0, 2.0, 4.0, 8.0, 16.0)


def test_counter_adds_up_by_labels() -> None:
    counter = Counter("/test/total", label_names=("model",))
    counter.increment(("a",))
    counter.increment(("a",), by=4)
    counter.increment(("b",), by=0)
    assert [(labels, series.value) for labels, series in counter.snapshot()] == [
        (("a",), 5),
        (("b",), 0),
    ]


def test_gauge_keeps_the_last_value_and_forgets_what_is_removed() -> None:
    gauge = Gauge("/test/now", label_names=("model",))
    gauge.assign(("a",), value=1)
    gauge.assign(("a",), value=0)
    gauge.assign(("b",), value=7)
    gauge.remove(("b",))
    gauge.remove(("never seen",))
    assert [(labels, series.value) for labels, series in gauge.snapshot()] == [(("a",), 0)]


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (0.0, [1, 0, 0]),
        (9.999, [1, 0, 0]),
        (10.0, [0, 1, 0]),
        (19.0, [0, 1, 0]),
        (20.0, [0, 0, 1]),
        (1e12, [0, 0, 1]),
    ],
)
def test_a_value_equal_to_a_bound_counts_above_it(value: float, counts: list[int]) -> None:
    histogram = Histogram("/test/spread", label_names=(), bounds=(10.0, 20.0))
    histogram.observe((), value=value)
    assert histogram.find(()).counts == counts


def test_histogram_sums_its_values() -> None:
    histogram = Histogram("/test/spread", label_names=(), bounds=(10.0, 20.0))
    histogram.observe((), value=1.5)
    histogram.observe((), value=200.0)
    assert histogram.find(()).sum == 201.5


def test_snapshot_is_sorted_by_label_values() -> None:
    counter = Counter("/test/total", label_names=("model", "status"))
    for labels in [("b", "OK"), ("a", "OK"), ("a", "NOT_FOUND")]:
        counter.increment(labels)
    assert [labels for labels, _ in counter.snapshot()] == [
        ("a", "NOT_FOUND"),
        ("a", "OK"),
        ("b", "OK"),
    ]


@contextmanager
def series_added_at_every_turn(counter: Counter) -> Iterator[None]:
    """Each object that is made may run the garbage collector, and that other code."""
    numbers = count()

    def add(phase: str, info: dict[str, int]) -> None:
        counter.increment((f"new {next(numbers)}",))

    threshold = gc.get_threshold()
    gc.callbacks.append(add)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(add)


def test_a_snapshot_bears_series_that_are_added_meanwhile() -> None:
    counter = Counter("/test/total", label_names=("model",))
    # More than there are spare tuples, which would be taken without making any.
    names = [(f"{number:04}",) for number in range(5_000)]
    for name in names:
        counter.increment(name)
    with series_added_at_every_turn(counter):
        listed = counter.snapshot()
    assert [labels for labels, _ in listed[: len(names)]] == names
    assert len(counter.snapshot()) > len(names)


def test_label_sets_past_the_bound_share_one_series() -> None:
    counter = Counter("/test/total", label_names=("model", "status"), max_num_series=2)
    for model in ["a", "b", "c", "d", "a"]:
        counter.increment((model, "OK"))
    assert [(labels, series.value) for labels, series in counter.snapshot()] == [
        ((OTHER, OTHER), 2),
        (("a", "OK"), 2),
        (("b", "OK"), 1),
    ]


def test_the_default_bound_is_ten_thousand() -> None:
    histogram = Histogram("/test/spread", label_names=("model",), bounds=(1.0,))
    for number in range(MAX_NUM_SERIES + 5):
        histogram.observe((str(number),), value=0.0)
    assert len(histogram.snapshot()) == 10_001
    assert histogram.find((OTHER,)).counts == [5, 0]


def test_a_removed_series_makes_room() -> None:
    gauge = Gauge("/test/now", label_names=("model",), max_num_series=1)
    gauge.assign(("a",), value=1)
    gauge.remove(("a",))
    gauge.assign(("b",), value=1)
    assert [labels for labels, _ in gauge.snapshot()] == [("b",)]


def test_absurdly_long_labels_are_not_kept() -> None:
    counter = Counter("/test/total", label_names=("model",))
    counter.increment(("x" * MAX_LABEL_LENGTH,))
    counter.increment(("x" * (MAX_LABEL_LENGTH + 1),))
    assert [labels for labels, _ in counter.snapshot()] == [(OTHER,), ("x" * MAX_LABEL_LENGTH,)]
