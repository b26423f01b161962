"""The numbers a scrape reports: counters, gauges and histograms, one series per set of labels.

Writers of one series must be on one thread, which for requests is the event loop; adding,
removing and reading series is safe from any thread, because each is a single dictionary
operation under the GIL. So a scrape may be rendered on any thread; what changes meanwhile is in it
or not.

Some labels come from clients, so the number of series is bounded: label sets past the bound, and
absurdly long ones, share a series whose every label is `__other__`.
"""

from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import ClassVar, Generic, TypeVar

Labels = tuple[str, ...]

OTHER = "__other__"
MAX_NUM_SERIES = 10_000
MAX_LABEL_LENGTH = 1_024

SeriesT = TypeVar("SeriesT")


def exponential_bounds(first: float, *, growth: float, num_bounds: int) -> tuple[float, ...]:
    """`first`, `first * growth`, ..., multiplied step by step as TensorFlow's `Buckets` does."""
    bounds = [first]
    while len(bounds) < num_bounds:
        bounds.append(bounds[-1] * growth)
    return tuple(bounds)


class ScalarSeries:
    """One number."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class HistogramSeries:
    """How often a value fell below each bound, and the sum of all values.

    `counts` has one more element than there are bounds, for values past the last. It is not
    cumulative.
    """

    __slots__ = ("counts", "sum")

    def __init__(self, num_bounds: int) -> None:
        self.counts = [0] * (num_bounds + 1)
        self.sum = 0.0


class Series(Generic[SeriesT]):
    """All series of one metric, by label values in the order of `label_names`."""

    def __init__(
        self,
        name: str,
        *,
        label_names: Labels,
        make: Callable[[], SeriesT],
        max_num_series: int,
    ) -> None:
        self.name = name
        self.label_names = label_names
        self._make = make
        self._max_num_series = max_num_series
        self._by_labels: dict[Labels, SeriesT] = {}

    def find(self, labels: Labels) -> SeriesT:
        """The series of these label values, made now if it is new."""
        found = self._by_labels.get(labels)
        return found if found is not None else self._add(labels)

    def remove(self, labels: Labels) -> None:
        """Report these label values no longer."""
        self._by_labels.pop(labels, None)

    def remove_where(self, is_obsolete: Callable[[Labels], bool]) -> None:
        """Report no longer whatever the question is answered with yes for."""
        for labels in list(self._by_labels):
            if is_obsolete(labels):
                self.remove(labels)

    def snapshot(self) -> list[tuple[Labels, SeriesT]]:
        """Every series, sorted by label values."""
        # Listing the items makes tuples, and so may run others' code; copying the dictionary not.
        return sorted(self._by_labels.copy().items(), key=itemgetter(0))

    def _add(self, labels: Labels) -> SeriesT:
        assert len(labels) == len(self.label_names), f"{self.name} has labels {self.label_names}"
        is_full = len(self._by_labels) >= self._max_num_series
        if is_full or any(len(label) > MAX_LABEL_LENGTH for label in labels):
            labels = (OTHER,) * len(labels)
        return self._by_labels.setdefault(labels, self._make())


class Counter(Series[ScalarSeries]):
    """A count that only grows."""

    kind: ClassVar[str] = "counter"

    def __init__(
        self, name: str, *, label_names: Labels, max_num_series: int = MAX_NUM_SERIES
    ) -> None:
        super().__init__(
            name, label_names=label_names, make=ScalarSeries, max_num_series=max_num_series
        )

    def increment(self, labels: Labels, *, by: int = 1) -> None:
        self.find(labels).value += by


class Gauge(Series[ScalarSeries]):
    """A number that is true now."""

    kind: ClassVar[str] = "gauge"

    def __init__(
        self, name: str, *, label_names: Labels, max_num_series: int = MAX_NUM_SERIES
    ) -> None:
        super().__init__(
            name, label_names=label_names, make=ScalarSeries, max_num_series=max_num_series
        )

    def assign(self, labels: Labels, *, value: float) -> None:
        self.find(labels).value = value


class Histogram(Series[HistogramSeries]):
    """How values are spread. A value equal to a bound counts above it, as in TensorFlow."""

    kind: ClassVar[str] = "histogram"

    def __init__(
        self,
        name: str,
        *,
        label_names: Labels,
        bounds: tuple[float, ...],
        max_num_series: int = MAX_NUM_SERIES,
    ) -> None:
        super().__init__(
            name,
            label_names=label_names,
            make=lambda: HistogramSeries(len(bounds)),
            max_num_series=max_num_series,
        )
        self.bounds = bounds

    def observe(self, labels: Labels, *, value: float) -> None:
        series = self.find(labels)
        series.counts[bisect_right(self.bounds, value)] += 1
        series.sum += value


def merge_histograms(first: Histogram, *, second: Histogram) -> Histogram:
    """The sums of two histograms with the same name, labels and bounds; each has its own writer."""
    merged = Histogram(
        first.name,
        label_names=first.label_names,
        bounds=first.bounds,
        max_num_series=2 * MAX_NUM_SERIES,
    )
    for labels, series in (*first.snapshot(), *second.snapshot()):
        total = merged.find(labels)
        total.counts = [a + b for a, b in zip(total.counts, series.counts, strict=True)]
        total.sum += series.sum
    return merged


Family = Counter | Gauge | Histogram
