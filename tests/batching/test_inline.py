import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet

import numpy as np
import pytest

from aspira.batching.completions import Completions
from aspira.batching.context import BatchingContext
from aspira.batching.options import BatchingParameters
from aspira.batching.servable import BatchedServable
from aspira.contracts.errors import DeadlineExceeded, Internal, InvalidArgument
from aspira.contracts.events import EventBus
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.tensors import Tensors
from aspira.testing.clock import JumpClock
from aspira.testing.toy_servable import ToyServable
from batching_toys import make_batched, unload

PATIENCE_S = 20.0
SHORT_S = 10e-6
LONG_S = 300e-6
ENOUGH = 20


class StraightServable(ToyServable):
    """A toy that never waits, and notes the thread and the first input of each of its runs."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.cpu_clock = JumpClock(), JumpClock()
        self.run_s = SHORT_S
        self.elapsed_s = SHORT_S
        self.gate = threading.Event()
        self.gate.set()
        self.is_running = threading.Event()
        self.runs: list[tuple[bool, float]] = []

    @property
    def straight_signatures(self) -> AbstractSet[str]:
        return {DEFAULT_SIGNATURE_NAME}

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.is_running.set()
        value = float(inputs["x"].flat[0])
        is_on_loop = threading.current_thread() is threading.main_thread()
        assert is_on_loop or self.gate.wait(PATIENCE_S)
        self.runs.append((is_on_loop, value))
        self.cpu_clock.jump(self.run_s)
        self.clock.jump(self.elapsed_s)
        if value < 0:
            raise InvalidArgument("negative")
        if np.isnan(value):
            raise ZeroDivisionError("by zero")
        return super().run(signature_name, inputs=inputs, outputs=outputs)

    @property
    def is_last_on_loop(self) -> bool:
        return self.runs[-1][0]


Scenario = Callable[[BatchedServable, StraightServable], Awaitable[None]]


def play(scenario: Scenario, *, parameters: BatchingParameters | None = None) -> None:
    async def act() -> None:
        toy = StraightServable()
        completions = Completions[Tensors](asyncio.get_running_loop())
        context = BatchingContext(toy.clock, completions, EventBus(), toy.cpu_clock)
        batched = make_batched(toy, parameters=parameters, context=context)
        await scenario(batched, toy)
        await unload(batched)

    asyncio.run(act())


async def ask(
    batched: BatchedServable, value: float = 1.0, *, size: int = 1, deadline: float | None = None
) -> list[float]:
    x = np.full(size, value, np.float32)
    outputs = await batched.run(
        "serving_default", inputs={"x": x}, outputs=("y",), deadline=deadline
    )
    found: list[float] = outputs["y"].tolist()
    return found


async def prove(batched: BatchedServable, *, size: int = 1) -> None:
    """Have it learn what runs of this size take."""
    for _ in range(ENOUGH):
        assert len(await ask(batched, size=size)) == size


def test_runs_that_prove_short_come_to_the_loop() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await ask(batched)
        assert not toy.is_last_on_loop
        await prove(batched)
        answers = await asyncio.gather(*(ask(batched, float(number)) for number in range(50)))
        assert answers == [[number / 2 + 2] for number in range(50)]
        assert toy.runs[-50:] == [(True, float(number)) for number in range(50)]

    play(scenario)


@pytest.mark.parametrize("what", ["runs that take long", "runs that other CPUs take part in"])
def test_long_runs_stay_on_threads(what: str) -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        toy.elapsed_s = LONG_S
        toy.run_s = LONG_S if what == "runs that take long" else SHORT_S
        for _ in range(5):
            await prove(batched)
        assert not any(is_on_loop for is_on_loop, _ in toy.runs)

    play(scenario)


def test_signatures_that_may_wait_stay_on_threads() -> None:
    class Waiting(StraightServable):
        @property
        def straight_signatures(self) -> AbstractSet[str]:
            return {"another"}

    async def act() -> None:
        toy = Waiting()
        batched = make_batched(toy)
        await prove(batched)
        await prove(batched)
        assert not any(is_on_loop for is_on_loop, _ in toy.runs)
        await unload(batched)

    asyncio.run(act())


def test_each_size_of_inputs_is_proven_for_itself_and_large_ones_never() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        await ask(batched, size=1000)
        assert not toy.is_last_on_loop
        await prove(batched, size=1000)
        assert toy.is_last_on_loop
        for _ in range(3):
            await prove(batched, size=10_000)
        assert not toy.is_last_on_loop

    play(scenario)


def test_runs_that_turn_out_long_leave_the_loop_at_once_and_return_when_short() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        toy.elapsed_s = 0.1
        await ask(batched)
        assert toy.is_last_on_loop
        await ask(batched)
        assert not toy.is_last_on_loop
        toy.elapsed_s = SHORT_S
        for _ in range(10):
            await prove(batched)
        assert toy.is_last_on_loop

    play(scenario)


def test_what_keeps_turning_out_long_is_tried_less_and_less() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        for number in range(3000):
            toy.elapsed_s = 0.1 if toy.runs and toy.is_last_on_loop else SHORT_S
            await ask(batched, float(number))
        assert 1 < sum(is_on_loop for is_on_loop, _ in toy.runs) < 20

    play(scenario)


def test_an_error_on_the_loop_is_that_of_its_own_request() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        found = await asyncio.gather(
            *(ask(batched, value) for value in (1.0, -1.0, np.nan, 2.0)), return_exceptions=True
        )
        assert found[0] == [2.5]
        assert isinstance(found[1], InvalidArgument)
        assert isinstance(found[2], Internal)
        assert found[3] == [3.0]
        assert [is_on_loop for is_on_loop, _ in toy.runs[-4:]] == [True] * 4

    play(scenario)


def test_a_failed_requests_tensors_are_let_go_with_its_error() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        tensor = np.float32([-1.0])
        is_freed = threading.Event()
        weakref.finalize(tensor, is_freed.set)
        inputs = {"x": tensor}
        del tensor
        with pytest.raises(InvalidArgument):
            await batched.run("serving_default", inputs=inputs, outputs=("y",), deadline=None)
        del inputs
        assert toy.is_last_on_loop
        # The loop lets go of what woke us.
        await asyncio.sleep(0)
        assert is_freed.is_set()

    play(scenario)


def test_what_is_late_or_given_up_is_not_run() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        toy.elapsed_s = 0.6
        tasks = [
            asyncio.ensure_future(ask(batched, value, deadline=deadline))
            for value, deadline in ((1.0, None), (2.0, 0.5), (3.0, None), (4.0, 100.0))
        ]
        await asyncio.sleep(0)
        tasks[2].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[0] == [2.5]
        assert isinstance(found[1], DeadlineExceeded)
        assert isinstance(found[2], asyncio.CancelledError)
        assert found[3] == [4.0]
        assert toy.runs[-2:] == [(True, 1.0), (True, 4.0)]

    play(scenario)


def test_others_on_the_loop_have_their_turns_between_rounds() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        toy.elapsed_s = 1.0
        tasks = [asyncio.ensure_future(ask(batched)) for _ in range(10)]
        num_runs_seen = []
        while not all(task.done() for task in tasks):
            num_runs_seen.append(len(toy.runs))
            await asyncio.sleep(0)
        assert len(set(num_runs_seen)) >= 10

    play(scenario)


def test_while_others_wait_all_wait() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        toy.gate.clear()
        toy.is_running.clear()
        # As many as there are threads run, and some more wait.
        slow = [asyncio.ensure_future(ask(batched, size=10_000)) for _ in range(200)]
        assert await asyncio.to_thread(toy.is_running.wait, PATIENCE_S)
        while batched.statistics().num_waiting == 0:
            await asyncio.sleep(0)
        last = asyncio.ensure_future(ask(batched, 7.0))
        await asyncio.sleep(0)
        toy.gate.set()
        await asyncio.gather(*slow, last)
        assert (False, 7.0) in toy.runs
        await ask(batched)
        assert toy.is_last_on_loop

    play(scenario)


def test_with_batching_requests_gather_and_never_come_to_the_loop() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        await prove(batched)
        await prove(batched)
        assert not any(is_on_loop for is_on_loop, _ in toy.runs)

    play(scenario, parameters=BatchingParameters())


def test_clients_cannot_have_it_remember_without_bound() -> None:
    async def scenario(batched: BatchedServable, toy: StraightServable) -> None:
        for number in range(300):
            outputs = ("y", f"y{number}")
            await batched.run(
                "serving_default", inputs={"x": np.float32([1])}, outputs=outputs, deadline=None
            )
        await prove(batched)
        assert not toy.is_last_on_loop

    play(scenario)
