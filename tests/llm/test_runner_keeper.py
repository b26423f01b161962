from collections.abc import Callable

import numpy as np
import pytest

from aspira.contracts.errors import Internal, ResourceExhausted, Unavailable
from aspira.llm.runner import Runner, RunnerLost, StepBatch
from aspira.llm.runner_keeper import RunnerKeeper
from aspira.testing.toy_decoder import ToyDecoder

EMPTY = StepBatch(
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.zeros(1, np.int32),
    np.empty(0, np.int32),
    np.zeros(1, np.int32),
    np.empty(0, np.int32),
)


def scripted(*outcomes: Exception | None, is_dead: bool = False) -> Callable[[], Runner]:
    """Runners that share one list of what their steps come to; the smallest step works.

    After an error `is_dead` fails that too.
    """
    left = iter(outcomes)
    has_failed = False

    def before_step(batch: StepBatch) -> None:
        nonlocal has_failed
        if len(batch.tokens):
            if has_failed and is_dead:
                raise ValueError("nothing works")
            return
        outcome = next(left)
        if outcome is not None:
            has_failed = True
            raise outcome

    return lambda: ToyDecoder(before_step=before_step)


def run_all(keeper: RunnerKeeper, num_steps: int) -> list[type[Exception] | None]:
    outcomes: list[type[Exception] | None] = []
    for _ in range(num_steps):
        try:
            keeper.run(EMPTY)
            outcomes.append(None)
        except (Internal, Unavailable, ResourceExhausted) as error:
            outcomes.append(type(error))
    return outcomes


def test_errors_keep_their_kind_and_foreign_ones_are_internal() -> None:
    keeper = RunnerKeeper(scripted(ResourceExhausted("memory"), ValueError("bad")))
    assert run_all(keeper, 2) == [ResourceExhausted, Internal]


def test_a_third_failure_in_a_row_means_a_lost_runner() -> None:
    bad = ValueError("bad")
    keeper = RunnerKeeper(scripted(bad, bad, None, bad, bad, bad))
    assert run_all(keeper, 6) == [Internal, Internal, None, Internal, Internal, RunnerLost]


def test_a_runner_that_fails_at_the_smallest_step_too_is_lost_at_once() -> None:
    keeper = RunnerKeeper(scripted(None, ValueError("bad"), is_dead=True))
    assert run_all(keeper, 2) == [None, RunnerLost]


def test_trying_a_runner_changes_no_block() -> None:
    keeper = RunnerKeeper(scripted(ValueError("bad")))
    payload = np.arange(keeper.runner.export_blocks([0]).size, dtype=np.uint8).reshape(1, -1)
    keeper.runner.import_blocks([0], payload=payload)
    assert run_all(keeper, 1) == [Internal]
    np.testing.assert_array_equal(keeper.runner.export_blocks([0]), payload)


def test_a_lost_runner_is_closed_and_replaced() -> None:
    keeper = RunnerKeeper(scripted(None, RunnerLost("gone")))
    first = keeper.runner
    assert run_all(keeper, 2) == [None, RunnerLost]
    assert keeper.rebuild() is keeper.runner is not first
    assert isinstance(first, ToyDecoder)
    assert first.is_closed
    assert keeper.num_rebuilds == 1


def test_a_runner_that_never_worked_is_not_replaced() -> None:
    keeper = RunnerKeeper(scripted(RunnerLost("gone")))
    run_all(keeper, 1)
    with pytest.raises(Unavailable, match="before its first step"):
        keeper.rebuild()


def test_another_runner_that_does_not_work_either_is_unavailable() -> None:
    keeper = RunnerKeeper(scripted(None, RunnerLost("gone"), is_dead=True))
    run_all(keeper, 2)
    with pytest.raises(Unavailable, match="could not be made again: nothing works"):
        keeper.rebuild()


class CountedDecoder(ToyDecoder):
    """Knows how often it was closed."""

    num_closed = 0

    def close(self) -> None:
        self.num_closed += 1
        super().close()


def test_a_runner_is_closed_once_however_often_it_is_given_up() -> None:
    """What it shares with others, a session for instance, it must not give up for them."""
    runners = [CountedDecoder()]
    first = runners[0]
    keeper = RunnerKeeper(runners.pop)
    for _ in range(2):
        with pytest.raises(Unavailable):
            keeper.rebuild()
        keeper.close()
    assert first.num_closed == 1


def test_a_runner_that_cannot_be_made_again_is_unavailable() -> None:
    runners: list[Runner] = [scripted(None)()]

    def make() -> Runner:
        if not runners:
            raise ValueError("the file is gone")
        return runners.pop()

    keeper = RunnerKeeper(make)
    keeper.run(EMPTY)
    with pytest.raises(Unavailable, match="could not be made again: the file is gone"):
        keeper.rebuild()
