"""Events become metrics: TensorFlow Serving's own, and ours, which know versions and failures.

Requests end on the event loop, one at a time, and take no lock. All other events are rare and may
come from load threads, so they take one.

Clients may ask for models that do not exist, and must not fill the room of those that do. A request
that failed before a version was chosen, for a name that no lifecycle event has told of, counts in
our families as `__unknown__`; TensorFlow Serving's keep its name, for a limited number of names.

What is told by version leaves the page some minutes after the version has ended, and what is told
by model after the model was removed: late enough that a last scrape has seen it.
"""

from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from threading import Lock

from aspira.batching.scheduler import BatchingStatistics
from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code
from aspira.contracts.events import (
    EventBus,
    LifecycleEvent,
    ModelRemoved,
    RequestEnded,
    VersionRetired,
)
from aspira.contracts.identity import ServableId
from aspira.observability.accelerators import AcceleratorMetrics
from aspira.observability.batch_metrics import BatchMetrics, queue_families
from aspira.observability.exposition import render
from aspira.observability.generation_metrics import GenerationMetrics
from aspira.observability.lingering import Lingering
from aspira.observability.metrics import (
    MAX_LABEL_LENGTH,
    MAX_NUM_SERIES,
    OTHER,
    Counter,
    Family,
    Histogram,
    HistogramSeries,
    Labels,
    ScalarSeries,
    exponential_bounds,
    merge_histograms,
)
from aspira.observability.model_metrics import (
    GRPC_API_LABELS,
    LATENCY_BOUNDS_US,
    MICROSECONDS_PER_SECOND,
    RUNTIME,
    ModelMetrics,
    make_runtime_latency,
)

UNKNOWN = "__unknown__"
MAX_NUM_UNKNOWN_SERIES = 1_000
EXAMPLE_COUNT_BOUNDS = exponential_bounds(1.0, growth=2.0, num_bounds=15)

_REST_API_LABELS = frozenset(GRPC_API_LABELS)


class ServingMetrics:
    """Every metric of the server. `attach` it to the event bus; `render` is for a scrape.

    `clock` says when what has ended leaves the page. `max_num_series` bounds each family about
    requests, and `max_num_unknown_series` the part of it that names of unknown models may take.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        max_num_series: int = MAX_NUM_SERIES,
        max_num_unknown_series: int = MAX_NUM_UNKNOWN_SERIES,
    ) -> None:
        self._clock = clock
        self._models = ModelMetrics()
        self._accelerators = AcceleratorMetrics()
        self._lingering = Lingering()
        self._requests = _RequestMetrics(
            self._models.names,
            max_num_series=max_num_series,
            max_num_unknown_series=max_num_unknown_series,
        )
        self._models_lock = Lock()
        self._batches = BatchMetrics()
        self._generations = GenerationMetrics()

    def attach(self, events: EventBus) -> None:
        """Count what is published from now on."""
        events.subscribe_requests(self.on_request)
        events.subscribe_lifecycle(self.on_lifecycle)
        events.subscribe_batches(self._batches.count)
        events.subscribe_generations(self._generations.count)

    def on_request(self, event: RequestEnded) -> None:
        self._requests.count(event)

    def on_lifecycle(self, event: LifecycleEvent) -> None:
        with self._models_lock:
            self._models.note(event)
            self._accelerators.note(event)
            self._lingering.note(event, now_s=self._clock.now())
            self._drop_overdue()

    def render(self, queues: Iterable[tuple[ServableId, BatchingStatistics]] = ()) -> bytes:
        """The metrics page, in TensorFlow Serving's text format. Safe on any thread.

        `queues` are those of the versions that can serve now.
        """
        with self._models_lock:
            self._drop_overdue()
        return render([*self._families, *queue_families(queues)])

    def read_first(self, name: str) -> int:
        """The first series of a counter or gauge by TensorFlow's name of it, such as
        `/tensorflow/serving/request_count`.

        0 for a histogram, and for what has no series or is not there, as the original has it.
        """
        for family in self._families:
            if family.name == name and not isinstance(family, Histogram):
                return int(next((series.value for _, series in family.snapshot()), 0))
        return 0

    @property
    def _families(self) -> list[Family]:
        runtime_latency_us = merge_histograms(
            self._requests.runtime_latency_us, second=self._models.runtime_latency_us
        )
        return [
            *self._requests.families,
            runtime_latency_us,
            *self._models.families,
            *self._accelerators.families,
            *self._batches.families,
            *self._generations.families,
        ]

    def _drop_overdue(self) -> None:
        for gone in self._lingering.take(self._clock.now()):
            match gone:
                case VersionRetired(servable_id=servable_id, path=path):
                    self._models.drop_version(servable_id, path=path)
                    if not self._models.is_alive(servable_id):
                        self._requests.drop(servable_id.name, version=servable_id.version)
                        self._generations.drop(servable_id.name, version=servable_id.version)
                case ModelRemoved(model_name=name):
                    self._models.drop_model(name)
                    self._requests.drop(name)
                    self._generations.drop(name)


@dataclass(frozen=True, slots=True)
class _RequestSeries:
    """Where one kind of request is counted; failures have no histograms."""

    counters: tuple[ScalarSeries, ...]
    histograms: tuple[HistogramSeries, ...]
    runtime: HistogramSeries | None


class _RequestMetrics:
    """How many requests ended how, and how long the successful ones took.

    `model_names` are those that are known; the owner adds to it.
    """

    def __init__(
        self, model_names: AbstractSet[str], *, max_num_series: int, max_num_unknown_series: int
    ) -> None:
        self._count = Counter(
            "/tensorflow/serving/request_count",
            label_names=("model_name", "status"),
            max_num_series=max_num_series,
        )
        self._latency_us = Histogram(
            "/tensorflow/serving/request_latency",
            label_names=("model_name", "API", "entrypoint"),
            bounds=LATENCY_BOUNDS_US,
            max_num_series=max_num_series,
        )
        self._version_count = Counter(
            "/aspira/request_count",
            label_names=("model_name", "version", "api", "entrypoint", "status"),
            max_num_series=max_num_series,
        )
        self._version_latency_us = Histogram(
            "/aspira/request_latency",
            label_names=("model_name", "version", "api", "entrypoint"),
            bounds=LATENCY_BOUNDS_US,
            max_num_series=max_num_series,
        )
        self.runtime_latency_us = make_runtime_latency(max_num_series)
        self._example_counts = Histogram(
            "/tensorflow/serving/request_example_counts",
            label_names=("model",),
            bounds=EXAMPLE_COUNT_BOUNDS,
            max_num_series=max_num_series,
        )
        self._example_count_total = Counter(
            "/tensorflow/serving/request_example_count_total",
            label_names=("model",),
            max_num_series=max_num_series,
        )
        self._max_num_known = max_num_series
        self._known: dict[tuple[object, ...], _RequestSeries] = {}
        self._model_names = model_names
        self._max_num_unknown = max_num_unknown_series
        self._unknown: set[Labels] = set()

    @property
    def families(self) -> tuple[Family, ...]:
        """All but `runtime_latency_us`, to which warm-up adds."""
        return (
            self._count,
            self._latency_us,
            self._version_count,
            self._version_latency_us,
            self._example_counts,
            self._example_count_total,
        )

    def count(self, event: RequestEnded) -> None:
        key = event[:5]
        series = self._known.get(key)
        if series is None:
            series = self._find_series(event)
            if self._is_worth_keeping(event):
                self._known[key] = series
        latency_us = event.duration_s * MICROSECONDS_PER_SECOND
        for counter in series.counters:
            counter.value += 1
        if series.histograms:
            index = bisect_right(LATENCY_BOUNDS_US, latency_us)
            for histogram in series.histograms:
                histogram.counts[index] += 1
                histogram.sum += latency_us
        if event.run_s is not None:
            runtime = series.runtime or self._find_runtime(event)
            if runtime is not None:
                run_us = event.run_s * MICROSECONDS_PER_SECOND
                runtime.counts[bisect_right(LATENCY_BOUNDS_US, run_us)] += 1
                runtime.sum += run_us
        if event.num_examples:
            self._example_counts.observe((event.model_name,), value=event.num_examples)
            self._example_count_total.increment((event.model_name,), by=event.num_examples)

    def drop(self, name: str, *, version: int | None = None) -> None:
        """Forget a model, or what is told by one version of it. Safe on any thread."""
        if version is None:
            start: tuple[object, ...] = (name,)
            families: tuple[Family, ...] = (*self.families, self.runtime_latency_us)
        else:
            start = (name, version)
            families = (self._version_count, self._version_latency_us)
        for key in list(self._known):
            if key[: len(start)] == start:
                self._known.pop(key, None)
        labels = tuple(map(str, start))
        for family in families:
            family.remove_where(lambda found: found[: len(labels)] == labels)

    def _find_series(self, event: RequestEnded) -> "_RequestSeries":
        """The series that requests alike in all but their duration count in."""
        status = event.code.name
        version = "" if event.version is None else str(event.version)
        is_unknown = self._is_unknown(event)
        name = UNKNOWN if is_unknown else event.model_name
        labels = (name, version, event.api, event.entrypoint)
        counters = [self._version_count.find((*labels, status))]
        histograms = [self._version_latency_us.find(labels)] if event.code is Code.OK else []
        reference_labels = _try_reference_labels(event)
        if reference_labels is not None:
            count_labels = (event.model_name, status)
            if is_unknown:
                count_labels = self._limit_unknown(count_labels)
            counters.append(self._count.find(count_labels))
            if event.code is Code.OK:
                histograms.append(self._latency_us.find((event.model_name, *reference_labels)))
        return _RequestSeries(tuple(counters), tuple(histograms), self._find_runtime(event))

    def _find_runtime(self, event: RequestEnded) -> HistogramSeries | None:
        """Where runs of such requests count; failures before the run must not make series."""
        api = GRPC_API_LABELS.get(event.api)
        if api is None or event.run_s is None:
            return None
        return self.runtime_latency_us.find((event.model_name, api, RUNTIME))

    def _is_unknown(self, event: RequestEnded) -> bool:
        """Whether it failed for want of a model, or too early to tell, under a name of no model."""
        if event.version is not None or event.code is Code.OK:
            return False
        # What could not be routed has no name at all.
        return bool(event.model_name) and event.model_name not in self._model_names

    def _limit_unknown(self, labels: tuple[str, str]) -> tuple[str, str]:
        if labels in self._unknown:
            return labels
        is_full = len(self._unknown) >= self._max_num_unknown
        if is_full or len(labels[0]) > MAX_LABEL_LENGTH:
            return (OTHER, OTHER)
        self._unknown.add(labels)
        return labels

    def _is_worth_keeping(self, event: RequestEnded) -> bool:
        """Whether requests like it come again: an unknown name may be new each time, and long."""
        is_full = len(self._known) >= self._max_num_known
        is_short = len(event.model_name) <= MAX_LABEL_LENGTH
        return is_short and not is_full and not self._is_unknown(event)


def _try_reference_labels(event: RequestEnded) -> tuple[str, str] | None:
    """The labels API and entrypoint; None where TensorFlow Serving does not count the request.

    It counts everything over REST, with an empty API for what is not an inference, and Predict,
    Classify and Regress over gRPC.
    """
    if event.entrypoint == "rest":
        return (event.api if event.api in _REST_API_LABELS else "", "REST")
    if event.entrypoint == "grpc" and event.api in GRPC_API_LABELS:
        return (GRPC_API_LABELS[event.api], "GRPC")
    return None
