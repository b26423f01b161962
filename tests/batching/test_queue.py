import asyncio

import numpy as np
import pytest

from aspira.batching.cost_model import CostModel
from aspira.batching.options import BatchingParameters
from aspira.batching.queue import Batch, Kind, Work, WorkQueue
from aspira.contracts.errors import Cancelled
from aspira.contracts.tensors import Tensors

LOOP = asyncio.new_event_loop()
A = Kind("a", ("y",), ())
B = Kind("b", ("y",), ())
ALONE = Kind("alone", ("y",), None)


def new_future() -> asyncio.Future[Tensors]:
    return asyncio.Future(loop=LOOP)


def work(
    num_rows: int = 1,
    *,
    kind: Kind = A,
    arrival: float = 0.0,
    deadline: float | None = None,
    priority: int = 0,
) -> Work:
    inputs = {"x": np.zeros(num_rows)}
    return Work(kind, inputs, num_rows, 8, deadline, new_future(), arrival, priority)


def queue_of(
    *works: Work, parameters: BatchingParameters | None = None, cost_model: CostModel | None = None
) -> WorkQueue:
    queue = WorkQueue(parameters, cost_model=cost_model or CostModel())
    for each in works:
        queue.add(each)
    return queue


def of_size(size: int, *, timeout_s: float = 0.0, can_split: bool = False) -> BatchingParameters:
    return BatchingParameters(max_batch_size=size, batch_timeout_s=timeout_s, can_split=can_split)


def take(queue: WorkQueue, *, now: float = 1.0) -> Batch | None:
    batch, late = queue.take(now=now)
    assert late == []
    return batch


def works_of(batch: Batch | None) -> list[Work]:
    return [piece.work for piece in batch.pieces] if batch is not None else []


def is_empty(queue: WorkQueue) -> bool:
    return (queue.num_requests, queue.num_rows, queue.num_bytes) == (0, 0, 0)


def test_an_empty_queue_has_no_batch() -> None:
    queue = queue_of(parameters=of_size(4))
    assert take(queue) is None
    assert queue.next_ready() is None
    assert queue.oldest_arrival() is None


def test_requests_share_a_batch_up_to_its_size_in_order() -> None:
    works = [work(2), work(1), work(2), work(1)]
    queue = queue_of(*works, parameters=of_size(4))
    assert works_of(take(queue)) == works[:2]
    assert works_of(take(queue)) == works[2:]
    assert take(queue) is None
    assert is_empty(queue)


def test_what_cannot_be_merged_is_taken_alone() -> None:
    works = [work(kind=ALONE), work(kind=ALONE)]
    queue = queue_of(*works, parameters=None)
    assert works_of(take(queue)) == works[:1]
    assert works_of(take(queue)) == works[1:]


def test_quick_runs_are_taken_together_and_may_be_put_back() -> None:
    quick = CostModel()
    quick.observe(1, run_s=25e-6)
    works = [work(kind=ALONE) for _ in range(6)]
    queue = queue_of(*works, cost_model=quick)
    batch = take(queue)
    assert batch is not None
    assert works_of(batch) == works[:4]
    queue.put_back(batch.pieces[1:])
    assert queue.num_requests == 5
    assert works_of(take(queue)) == works[1:5]


def test_kinds_are_not_mixed_and_the_longest_waiting_is_next() -> None:
    first, second, third = work(arrival=0.1), work(kind=B, arrival=0.2), work(arrival=0.3)
    queue = queue_of(first, second, third, parameters=of_size(1))
    assert [works_of(take(queue))[0] for _ in range(3)] == [first, second, third]


def test_a_timeout_lets_a_batch_wait_for_company() -> None:
    queue = queue_of(work(arrival=1.0), work(arrival=1.2), parameters=of_size(4, timeout_s=0.5))
    assert take(queue, now=1.4) is None
    assert queue.next_ready() == 1.5
    batch = take(queue, now=1.5)
    assert batch is not None
    assert batch.num_rows == 2


def test_a_full_batch_waits_for_nothing() -> None:
    queue = queue_of(
        work(3, arrival=1.0), work(2, arrival=1.0), parameters=of_size(4, timeout_s=9.0)
    )
    batch = take(queue, now=1.0)
    assert batch is not None
    assert batch.num_rows == 3
    assert take(queue, now=1.0) is None
    assert queue.take(now=1.0, is_closing=True)[0] is not None


def test_requests_are_spread_over_batches_where_they_may_be() -> None:
    large, small = work(7), work(2)
    queue = queue_of(work(2), large, small, parameters=of_size(4, can_split=True))
    batches = [take(queue) for _ in range(3)]
    cuts = [[(p.begin, p.end) for p in batch.pieces] for batch in batches if batch is not None]
    assert cuts == [[(0, 2), (0, 2)], [(2, 6)], [(6, 7), (0, 2)]]
    assert is_empty(queue)


def test_a_request_larger_than_the_limit_of_now_still_runs() -> None:
    large = work(9)
    queue = queue_of(large, parameters=of_size(16))
    queue.rows_limit = 2
    assert works_of(take(queue)) == [large]


def test_no_rows_are_a_batch_too() -> None:
    nothing = work(0)
    assert works_of(take(queue_of(nothing, parameters=of_size(4)))) == [nothing]


def test_what_nobody_waits_for_is_left_out() -> None:
    gone, failed, waiting = work(), work(), work()
    gone.future.cancel()
    failed.future.set_exception(Cancelled("left"))
    failed.future.exception()
    queue = queue_of(gone, failed, waiting, parameters=of_size(4))
    assert works_of(take(queue)) == [waiting]
    assert is_empty(queue)


def test_what_is_late_is_handed_out_apart() -> None:
    late, in_time = work(deadline=0.9), work(deadline=1.1)
    batch, found_late = queue_of(late, in_time, parameters=of_size(4)).take(now=1.0)
    assert (works_of(batch), found_late) == ([in_time], [late])


def test_what_cannot_make_it_is_late_if_others_wait() -> None:
    slow = CostModel()
    slow.observe(1, run_s=0.5)
    hopeless, other = work(deadline=1.4), work()
    batch, late = queue_of(hopeless, other, parameters=of_size(4), cost_model=slow).take(now=1.0)
    assert (works_of(batch), late) == ([other], [hopeless])
    hopeless, other = work(kind=ALONE, deadline=1.4), work(kind=ALONE)
    batch, late = queue_of(hopeless, other, cost_model=slow).take(now=1.0)
    assert (works_of(batch), late) == ([other], [hopeless])
    alone = work(deadline=1.4)
    batch, late = queue_of(alone, parameters=of_size(4), cost_model=slow).take(now=1.0)
    assert (works_of(batch), late) == ([alone], [])


def test_the_urgent_go_first_and_nobody_is_forgotten() -> None:
    usual = work(arrival=0.0)
    urgent = work(arrival=0.05, priority=2)
    last = work(arrival=1.0, priority=-4)
    queue = queue_of(last, usual, urgent, parameters=of_size(1))
    assert [works_of(take(queue))[0] for _ in range(3)] == [urgent, usual, last]
    waited, newer = work(arrival=0.0, priority=-4), work(arrival=5.0, priority=3)
    queue = queue_of(newer, waited, parameters=of_size(1))
    assert works_of(take(queue, now=6.0)) == [waited]


@pytest.mark.parametrize("shapes", [(), None])
def test_many_kinds_come_and_go(shapes: tuple[()] | None) -> None:
    queue = queue_of(parameters=of_size(4))
    for number in range(1000):
        queue.add(work(kind=Kind(str(number), (), shapes)))
    for _ in range(1000):
        assert take(queue) is not None
    assert is_empty(queue)
    assert len(queue._lines) <= 64


@pytest.mark.parametrize("num_rows", [1, 3])
def test_rows_of_a_kind(num_rows: int) -> None:
    queue = queue_of(work(num_rows), work(kind=B), parameters=of_size(4))
    assert (queue.rows_of(A), queue.rows_of(B), queue.rows_of(ALONE)) == (num_rows, 1, 0)
