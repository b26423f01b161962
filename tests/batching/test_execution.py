import asyncio
import logging
from collections.abc import Sequence

import numpy as np
import pytest

from aspira.batching.execution import BatchRunner, Outcome, Run
from aspira.batching.options import BatchingParameters
from aspira.batching.queue import Batch, Kind, Part, Work
from aspira.contracts.errors import Internal, InvalidArgument, ServingError
from aspira.contracts.tensors import Tensors
from aspira.testing.clock import JumpClock

LOOP = asyncio.new_event_loop()
KIND = Kind("s", ("y",), ((11, ()),))
ALONE = Kind("s", ("y",), None)


def work(*values: float, kind: Kind = KIND) -> Work:
    x = np.float32(values)
    return Work(kind, {"x": x}, len(values), x.nbytes, None, asyncio.Future(loop=LOOP))


def whole(*works: Work) -> Batch:
    return Batch(works[0].kind, works, sum(each.num_rows for each in works))


class Double:
    """Doubles its input, refuses negative numbers, and remembers its runs."""

    def __init__(self) -> None:
        self.runs: list[list[float]] = []

    def __call__(self, kind: Kind, inputs: Tensors) -> Tensors:
        values = inputs["x"]
        self.runs.append(values.tolist())
        if (values < 0).any():  # type: ignore[operator]
            raise InvalidArgument("negative")
        return {"y": values * 2}  # type: ignore[operator]


def runner(run: Run, *, parameters: BatchingParameters | None = None) -> BatchRunner:
    return BatchRunner(run, parameters=parameters, clock=JumpClock())


def results(outcomes: Sequence[Outcome]) -> list[object]:
    return [
        result.message if isinstance(result, ServingError) else result["y"].tolist()
        for _, result in outcomes
    ]


def test_each_gets_its_own_rows() -> None:
    double = Double()
    execution = runner(double).execute(whole(work(1, 2), work(3), work(), work(4)))
    assert results(execution.outcomes) == [[2, 4], [6], [], [8]]
    assert double.runs == [[1, 2, 3, 4]]
    assert (execution.padded_rows, execution.is_failed) == (4, False)


def test_padding_is_run_and_dropped() -> None:
    double = Double()
    parameters = BatchingParameters(max_batch_size=4, allowed_batch_sizes=(2, 4))
    execution = runner(double, parameters=parameters).execute(whole(work(1), work(2, 3)))
    assert results(execution.outcomes) == [[2], [4, 6]]
    assert double.runs == [[1, 2, 3, 2]]
    assert execution.padded_rows == 4


@pytest.mark.parametrize("culprits", [{0}, {4}, {6}, {1, 5}, set(range(7))])
def test_a_request_at_fault_fails_alone(culprits: set[int]) -> None:
    double = Double()
    works = [work(-1 if index in culprits else index) for index in range(7)]
    execution = runner(double).execute(whole(*works))
    expected = ["negative" if index in culprits else [index * 2] for index in range(7)]
    assert results(execution.outcomes) == expected
    assert [future for future, _ in execution.outcomes] == [each.future for each in works]
    assert execution.is_failed
    assert len(double.runs) <= 2 * len(works)


def test_a_model_that_does_not_keep_rows_apart_is_asked_one_by_one() -> None:
    execution = runner(lambda kind, inputs: {"y": inputs["x"].sum(keepdims=True)}).execute(
        whole(work(1, 2), work(3))
    )
    assert results(execution.outcomes) == [[3], [3]]


def test_what_shares_nothing_is_run_one_by_one() -> None:
    double = Double()
    works = [work(1, kind=ALONE), work(-1, kind=ALONE), work(3, kind=ALONE)]
    execution = runner(double).execute(whole(*works))
    assert results(execution.outcomes) == [[2], "negative", [6]]
    assert double.runs == [[1], [-1], [3]]


def test_quick_runs_that_turn_out_slow_are_given_back() -> None:
    clock = JumpClock()

    def run(kind: Kind, inputs: Tensors) -> Tensors:
        clock.jump(0.0007)
        return {"y": inputs["x"]}

    works = [work(number, kind=ALONE) for number in range(5)]
    execution = BatchRunner(run, parameters=None, clock=clock).execute(whole(*works))
    assert results(execution.outcomes) == [[0], [1]]
    assert [piece.work for piece in execution.rest] == works[2:]


def test_a_request_spread_over_runs_ends_with_its_last_part() -> None:
    large = work(1, 2, 3)
    batches = runner(Double())
    first = batches.execute(Batch(KIND, [Part(large, 1, 3)], 2))
    assert first.outcomes == []
    second = batches.execute(Batch(KIND, [Part(large, 0, 1)], 1))
    assert results(second.outcomes) == [[2, 4, 6]]


def test_a_request_spread_over_runs_fails_once() -> None:
    large, small = work(-1, 2, -3), work(4)
    batches = runner(Double())
    first = batches.execute(Batch(KIND, [small, Part(large, 0, 1)], 2))
    assert results(first.outcomes) == [[8], "negative"]
    assert large.is_failed
    assert batches.execute(Batch(KIND, [Part(large, 1, 2)], 1)).outcomes == []
    assert batches.execute(Batch(KIND, [Part(large, 2, 3)], 1)).outcomes == []


def test_whatever_a_runtime_raises_is_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leave(kind: Kind, inputs: Tensors) -> Tensors:
        raise SystemExit(3)

    ((_, error),) = runner(leave).execute(whole(work(1))).outcomes
    assert isinstance(error, Internal)
    assert error.message == "SystemExit: 3"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
