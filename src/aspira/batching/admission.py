"""Refuses requests that would only wait in vain, so that under overload the others are in time.

Three bounds hold whatever the load: requests, rows (as batches) and bytes that wait. Two more need
to know how fast the queue moves: a request is refused if it would be answered after its deadline,
and, where there is a latency target, while the queue has been standing longer than it for a while
(the idea of CoDel: bursts pass, standing queues do not).
"""

from typing import NamedTuple

from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.contracts.errors import ResourceExhausted, ServingError, Unavailable

_STANDING_S = 0.1
# The part of its time that a request may wait: the rest is for its run, and for estimates that are
# somewhat wrong.
_MAX_WAIT_PART = 0.7
_FORGETTING = 0.95
_MIN_RETRY_S = 0.05


class QueueLoad(NamedTuple):
    """What waits: in the queue of a request's own kind (`kind_rows`), and in all.

    `oldest_s` is how long the oldest request has waited. `seconds_per_row` is how fast the queue
    has been moving; 0 if that is not known.
    """

    kind_rows: int
    num_requests: int
    num_rows: int
    num_bytes: int
    oldest_s: float
    seconds_per_row: float

    @property
    def wait_s(self) -> float:
        """How long a request that comes now will wait."""
        return self.num_rows * self.seconds_per_row


class DrainRate:
    """How fast the queue moves, seen from where batches end, while there is a queue.

    Unlike the time of a run it counts all that comes between runs, and that threads share CPUs.
    """

    def __init__(self) -> None:
        self._rows = 0.0
        self._seconds = 0.0
        self._last_end_s: float | None = None

    @property
    def seconds_per_row(self) -> float:
        """0 if it is not known."""
        return self._seconds / self._rows if self._rows else 0.0

    def observe(self, num_rows: int, *, now: float, is_any_waiting: bool) -> None:
        """A batch has ended; whether there are requests that wait."""
        if is_any_waiting and self._last_end_s is not None:
            self._rows = self._rows * _FORGETTING + num_rows
            self._seconds = self._seconds * _FORGETTING + now - self._last_end_s
        self._last_end_s = now if is_any_waiting else None


class Admission:
    """The bounds of one version."""

    def __init__(self, options: BatchingOptions, *, parameters: BatchingParameters | None) -> None:
        self._parameters = parameters
        self._max_bytes = options.max_queued_bytes
        self._max_requests = options.max_queued_requests
        self._target_s = options.latency_target_s if options.is_learned else 0.0
        self._standing_since: float | None = None

    def check(
        self,
        load: QueueLoad,
        *,
        num_rows: int,
        num_bytes: int,
        remaining_s: float | None,
        now: float,
    ) -> None:
        """Whether a request may join the queue. `remaining_s` is the time to its deadline.

        Raises:
            Unavailable: too many wait; the texts are TensorFlow Serving's.
            ResourceExhausted: too many bytes wait, or it would wait too long.
        """
        if not load.num_requests:
            self._standing_since = None
            return
        self._check_room(load, num_rows=num_rows)
        if load.num_bytes + num_bytes > self._max_bytes:
            raise _too_busy(
                f"{load.num_bytes} bytes of inputs wait for this model, and at most "
                f"{self._max_bytes} may (--max_queued_bytes)",
                load=load,
            )
        if remaining_s is not None and load.wait_s > remaining_s * _MAX_WAIT_PART:
            raise _too_busy(
                f"It would take about {load.wait_s:.3g} s to get to this request, and its deadline "
                f"is in {remaining_s:.3g} s",
                load=load,
            )
        if self._is_standing(load, now=now):
            raise _too_busy(
                f"Requests to this model have been waiting longer than the latency target of "
                f"{self._target_s:.3g} s",
                load=load,
            )

    def _check_room(self, load: QueueLoad, *, num_rows: int) -> None:
        parameters = self._parameters
        if parameters is None:
            if load.num_requests >= self._max_requests:
                raise _too_busy(
                    f"{load.num_requests} requests wait for this model, and no more may "
                    "(--max_queued_requests)",
                    load=load,
                )
            return
        size, limit = parameters.execution_size, parameters.max_enqueued_batches
        if load.kind_rows + num_rows <= size * limit:
            return
        full, rest = divmod(load.kind_rows, size)
        text = "The batch scheduling queue to which this task was submitted is full; "
        if parameters.can_split:
            raise _unavailable(
                f"{text}task size is {num_rows} but scheduling capacity is only "
                f"{size * limit - load.kind_rows} (num_enqueued_batches={full + bool(rest)}, "
                f"max_enqueued_batches={limit}, open_batch_size={rest}, "
                f"max_execution_batch_size={size})",
                load=load,
            )
        raise _unavailable(
            f"{text}currently {full + bool(rest)} batches enqueued and max_enqueued_batches is "
            f"{limit}",
            load=load,
        )

    def _is_standing(self, load: QueueLoad, *, now: float) -> bool:
        if not self._target_s or load.oldest_s <= self._target_s / 2:
            self._standing_since = None
            return False
        if self._standing_since is None:
            self._standing_since = now
        return now - self._standing_since >= min(_STANDING_S, self._target_s)


def _too_busy(text: str, *, load: QueueLoad) -> ServingError:
    return ResourceExhausted(text, retry_after_s=max(load.wait_s, _MIN_RETRY_S))


def _unavailable(text: str, *, load: QueueLoad) -> ServingError:
    return Unavailable(text, retry_after_s=max(load.wait_s, _MIN_RETRY_S))
