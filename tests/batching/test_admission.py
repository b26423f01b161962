import pytest

from aspira.batching.admission import Admission, DrainRate, QueueLoad
from aspira.batching.options import BatchingMode, BatchingOptions, BatchingParameters
from aspira.contracts.errors import ResourceExhausted, ServingError, Unavailable

EMPTY = QueueLoad(0, 0, 0, 0, 0.0, 0.0)


def check(
    admission: Admission,
    load: QueueLoad,
    *,
    num_rows: int = 1,
    num_bytes: int = 8,
    remaining_s: float | None = None,
    now: float = 100.0,
) -> ServingError | None:
    try:
        admission.check(
            load, num_rows=num_rows, num_bytes=num_bytes, remaining_s=remaining_s, now=now
        )
    except ServingError as error:
        return error
    return None


def test_whatever_finds_nobody_waiting_may_come_in() -> None:
    admission = Admission(
        BatchingOptions(max_queued_requests=0, max_queued_bytes=0), parameters=None
    )
    assert check(admission, EMPTY, num_bytes=10**9, remaining_s=0.001) is None


def test_requests_that_are_not_batched_have_a_bound() -> None:
    admission = Admission(BatchingOptions(max_queued_requests=3), parameters=None)
    assert check(admission, EMPTY._replace(num_requests=2)) is None
    error = check(admission, EMPTY._replace(num_requests=3))
    assert isinstance(error, ResourceExhausted)
    assert error.message.startswith("3 requests wait for this model, and no more may")


def test_bytes_have_a_bound() -> None:
    admission = Admission(BatchingOptions(max_queued_bytes=100), parameters=None)
    load = EMPTY._replace(num_requests=1, num_bytes=60)
    assert check(admission, load, num_bytes=40) is None
    error = check(admission, load, num_bytes=41)
    assert isinstance(error, ResourceExhausted)
    assert "60 bytes of inputs wait" in error.message


def test_a_full_queue_is_unavailable_in_the_originals_words() -> None:
    parameters = BatchingParameters(max_batch_size=10, max_enqueued_batches=2)
    admission = Admission(BatchingOptions(), parameters=parameters)
    load = EMPTY._replace(num_requests=4, kind_rows=15)
    assert check(admission, load, num_rows=5) is None
    error = check(admission, load, num_rows=6)
    assert isinstance(error, Unavailable)
    assert error.message == (
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches "
        "enqueued and max_enqueued_batches is 2"
    )


def test_a_full_queue_of_requests_that_may_be_split() -> None:
    parameters = BatchingParameters(
        max_batch_size=10, max_enqueued_batches=2, can_split=True, max_execution_batch_size=8
    )
    admission = Admission(BatchingOptions(), parameters=parameters)
    error = check(admission, EMPTY._replace(num_requests=4, kind_rows=11), num_rows=6)
    assert isinstance(error, Unavailable)
    assert error.message == (
        "The batch scheduling queue to which this task was submitted is full; task size is 6 but "
        "scheduling capacity is only 5 (num_enqueued_batches=2, max_enqueued_batches=2, "
        "open_batch_size=3, max_execution_batch_size=8)"
    )


def test_what_would_be_answered_too_late_is_refused_at_once_with_a_hint() -> None:
    admission = Admission(BatchingOptions(), parameters=None)
    load = EMPTY._replace(num_requests=100, num_rows=100, seconds_per_row=0.01)
    assert check(admission, load, remaining_s=None) is None
    assert check(admission, load, remaining_s=1.5) is None
    error = check(admission, load, remaining_s=0.5)
    assert isinstance(error, ResourceExhausted)
    assert error.message == (
        "It would take about 1 s to get to this request, and its deadline is in 0.5 s"
    )
    assert error.retry_after_s == pytest.approx(1.0)


class Queue:
    """One whose oldest request has waited for a given time."""

    def __init__(self, target_s: float, *, mode: BatchingMode = BatchingMode.AUTO) -> None:
        options = BatchingOptions(mode=mode.value, latency_target_s=target_s)
        self._admission = Admission(options, parameters=BatchingParameters())

    def is_refused(self, oldest_s: float, *, now: float) -> bool:
        load = EMPTY._replace(num_requests=1, num_rows=1, oldest_s=oldest_s)
        return check(self._admission, load, now=now) is not None


def test_a_burst_passes_and_a_standing_queue_does_not() -> None:
    queue = Queue(0.05)
    assert not queue.is_refused(0.04, now=1.00)
    assert not queue.is_refused(0.04, now=1.04)
    assert queue.is_refused(0.04, now=1.06)
    assert not queue.is_refused(0.02, now=1.07), "it moves again"
    assert not queue.is_refused(0.04, now=1.08)
    assert queue.is_refused(0.04, now=1.20)


def test_without_a_target_a_queue_may_stand() -> None:
    assert not Queue(0.0).is_refused(5.0, now=1.0)
    assert not Queue(0.0).is_refused(5.0, now=9.0)


def test_the_rate_is_that_of_batches_which_end_while_others_wait() -> None:
    rate = DrainRate()
    assert rate.seconds_per_row == 0.0
    for number in range(10):
        rate.observe(4, now=100.0 + number * 0.02, is_any_waiting=True)
    assert rate.seconds_per_row == pytest.approx(0.005)
    rate.observe(4, now=101.0, is_any_waiting=False)
    rate.observe(4, now=500.0, is_any_waiting=True)
    assert rate.seconds_per_row == pytest.approx(0.005), "idle time says nothing"
    for number in range(100):
        rate.observe(1, now=500.0 + number * 0.02, is_any_waiting=True)
    assert rate.seconds_per_row == pytest.approx(0.02, rel=0.05)
