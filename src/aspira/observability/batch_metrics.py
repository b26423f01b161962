"""Metrics of batches under TensorFlow Serving's names, and of queues under ours."""

from collections.abc import Iterable
from threading import Lock

from aspira.batching.scheduler import BatchingStatistics
from aspira.contracts.events import BatchEnded
from aspira.contracts.identity import ServableId
from aspira.observability.metrics import Counter, Family, Gauge, Histogram, exponential_bounds

_PREFIX = "/tensorflow/serving/batching_session"
_SIZE_BOUNDS = exponential_bounds(1.0, growth=2.0, num_bounds=14)
_WAIT_BOUNDS_US = exponential_bounds(100.0, growth=1.2, num_bounds=52)
_MICROSECONDS_PER_SECOND = 1e6
# The original never sets this label's value.
_NO_POOL = ("",)


class BatchMetrics:
    """How full batches are and how long requests wait for them. Counts on any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wait_us = Histogram(
            f"{_PREFIX}/queuing_latency", label_names=("thread_pool_name",), bounds=_WAIT_BOUNDS_US
        )
        self._runs = Counter(f"{_PREFIX}/wrapped_run_count", label_names=())
        self._padding = Histogram(
            f"{_PREFIX}/padding_size", label_names=("execution_batch_size",), bounds=_SIZE_BOUNDS
        )
        self._input_size = Histogram(
            f"{_PREFIX}/input_batch_size", label_names=(), bounds=_SIZE_BOUNDS
        )
        self._processed_size = Histogram(
            f"{_PREFIX}/processed_batch_size", label_names=(), bounds=_SIZE_BOUNDS
        )

    @property
    def families(self) -> tuple[Family, ...]:
        return (
            self._wait_us,
            self._runs,
            self._padding,
            self._input_size,
            self._processed_size,
        )

    def count(self, event: BatchEnded) -> None:
        """Count one batch."""
        with self._lock:
            self._runs.increment(())
            self._processed_size.observe((), value=event.padded_rows)
            self._padding.observe(
                (str(event.padded_rows),), value=event.padded_rows - event.num_rows
            )
            for rows, wait_s in zip(event.request_rows, event.waits_s, strict=True):
                self._wait_us.observe(_NO_POOL, value=wait_s * _MICROSECONDS_PER_SECOND)
                # Once for each input tensor, as the original has it.
                for _ in range(event.num_inputs):
                    self._input_size.observe((), value=rows)


def queue_families(queues: Iterable[tuple[ServableId, BatchingStatistics]]) -> list[Family]:
    """What waits now, and what batching has learned, by version."""
    labels = ("model_name", "version")
    waiting = Gauge("/aspira/requests_waiting", label_names=labels)
    limit = Gauge("/aspira/batch_size_limit", label_names=labels)
    fixed_us = Gauge("/aspira/run_time_fixed_usecs", label_names=labels)
    row_us = Gauge("/aspira/run_time_per_row_usecs", label_names=labels)
    for servable_id, statistics in queues:
        values = (servable_id.name, str(servable_id.version))
        waiting.assign(values, value=statistics.num_waiting)
        limit.assign(values, value=statistics.max_batch_rows)
        if statistics.cost is not None:
            fixed, per_row = statistics.cost.fixed_s, statistics.cost.per_row_s
            fixed_us.assign(values, value=round(fixed * _MICROSECONDS_PER_SECOND))
            row_us.assign(values, value=round(per_row * _MICROSECONDS_PER_SECOND))
    return [waiting, limit, fixed_us, row_us]
