import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from aspira.batching.completions import Completions
from aspira.batching.options import BatchingOptions
from aspira.batching.servable import BatchedServable, BatchingLoader
from aspira.contracts.clock import Clock, SystemClock
from aspira.contracts.errors import DataLoss, DeadlineExceeded, Unavailable
from aspira.contracts.servable import Loader, Servable
from aspira.contracts.tensors import Tensors
from aspira.testing.clock import JumpClock
from aspira.testing.toy_servable import ToyLoader, ToyServable

PATIENCE_S = 20.0
TIMED_OUT = "Timed out waiting for notification"
X = np.float32([1, 2, 5])


class HeldServable(ToyServable):
    """A toy whose runs wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.num_runs = 0
        self.gate = threading.Event()
        self.is_running = threading.Event()

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.num_runs += 1
        self.is_running.set()
        assert self.gate.wait(PATIENCE_S)
        return super().run(signature_name, inputs=inputs, outputs=outputs)

    async def wait_running(self) -> None:
        assert await asyncio.to_thread(self.is_running.wait, PATIENCE_S)


class OneLoader:
    """Loads what it is given."""

    def __init__(self, servable: Servable) -> None:
        self._servable = servable

    def load(self) -> Servable:
        return self._servable


async def unload(batched: BatchedServable) -> None:
    await asyncio.get_running_loop().run_in_executor(None, batched.unload)


def load(loader: Loader[Servable], *, clock: Clock) -> BatchedServable:
    return BatchingLoader(
        loader,
        name="m-1",
        options=BatchingOptions(num_threads=1),
        clock=clock,
        completions=Completions[Tensors](asyncio.get_running_loop()),
    ).load()


def play(
    scenario: Callable[[BatchedServable], Awaitable[None]],
    *,
    servable: ToyServable | None = None,
    clock: Clock | None = None,
) -> None:
    toy = servable or ToyServable()

    async def act() -> None:
        batched = load(OneLoader(toy), clock=clock or SystemClock())
        await scenario(batched)
        if not toy.is_unloaded:
            await unload(batched)

    asyncio.run(act())
    assert toy.is_unloaded


async def ask(batched: BatchedServable, *, deadline: float | None = None) -> list[float]:
    outputs = await batched.run(
        "serving_default", inputs={"x": X}, outputs=("y",), deadline=deadline
    )
    assert outputs.keys() == {"y"}
    found: list[float] = outputs["y"].tolist()
    return found


def test_it_answers() -> None:
    async def scenario(batched: BatchedServable) -> None:
        assert await ask(batched) == [2.5, 3.0, 4.5]
        assert await ask(batched, deadline=SystemClock().now() + PATIENCE_S) == [2.5, 3.0, 4.5]

    play(scenario)


def test_it_has_the_signatures_of_its_servable() -> None:
    async def scenario(batched: BatchedServable) -> None:
        assert batched.signatures == ToyServable().signatures

    play(scenario)


def test_a_loaders_error_passes() -> None:
    class Broken:
        def load(self) -> Servable:
            raise DataLoss("truncated")

    async def act() -> None:
        with pytest.raises(DataLoss, match="truncated"):
            load(Broken(), clock=SystemClock())

    asyncio.run(act())


def test_a_loader_can_load_again() -> None:
    async def act() -> None:
        loader = BatchingLoader(
            ToyLoader(),
            name="m-1",
            options=BatchingOptions(),
            clock=SystemClock(),
            completions=Completions[Tensors](asyncio.get_running_loop()),
        )
        first, second = loader.load(), loader.load()
        await unload(first)
        assert await ask(second) == [2.5, 3.0, 4.5]
        await unload(second)

    asyncio.run(act())


def test_an_error_of_the_run_passes() -> None:
    class Failing(ToyServable):
        def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
            raise Unavailable("device lost")

    async def scenario(batched: BatchedServable) -> None:
        with pytest.raises(Unavailable, match="device lost"):
            await ask(batched)

    play(scenario, servable=Failing())


def test_a_deadline_that_has_passed_is_not_even_queued() -> None:
    servable = HeldServable()
    clock = JumpClock()

    async def scenario(batched: BatchedServable) -> None:
        clock.jump(5.0)
        with pytest.raises(DeadlineExceeded) as caught:
            await ask(batched, deadline=5.0)
        assert caught.value.message == TIMED_OUT
        await unload(batched)
        assert servable.num_runs == 0

    play(scenario, servable=servable, clock=clock)


def test_a_deadline_during_the_run() -> None:
    servable = HeldServable()

    async def scenario(batched: BatchedServable) -> None:
        with pytest.raises(DeadlineExceeded) as caught:
            await ask(batched, deadline=SystemClock().now() + 0.05)
        assert caught.value.message == TIMED_OUT
        servable.gate.set()
        assert await ask(batched) == [2.5, 3.0, 4.5]

    play(scenario, servable=servable)


def test_a_deadline_in_the_queue() -> None:
    servable = HeldServable()

    async def scenario(batched: BatchedServable) -> None:
        first = asyncio.ensure_future(ask(batched))
        await servable.wait_running()
        with pytest.raises(DeadlineExceeded) as caught:
            await ask(batched, deadline=SystemClock().now() + 0.01)
        assert caught.value.message == TIMED_OUT
        servable.gate.set()
        assert await first == [2.5, 3.0, 4.5]
        await unload(batched)
        assert servable.num_runs == 1

    play(scenario, servable=servable)


def test_a_caller_that_goes_away_in_the_queue_is_not_served() -> None:
    servable = HeldServable()

    async def scenario(batched: BatchedServable) -> None:
        first = asyncio.ensure_future(ask(batched))
        await servable.wait_running()
        leaving = asyncio.ensure_future(ask(batched, deadline=SystemClock().now() + PATIENCE_S))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        servable.gate.set()
        assert await first == [2.5, 3.0, 4.5]
        await unload(batched)
        assert servable.num_runs == 1

    play(scenario, servable=servable)


def test_a_caller_that_goes_away_during_the_run_disturbs_nobody() -> None:
    servable = HeldServable()

    async def scenario(batched: BatchedServable) -> None:
        leaving = asyncio.ensure_future(ask(batched))
        await servable.wait_running()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        servable.gate.set()
        assert await ask(batched) == [2.5, 3.0, 4.5]

    play(scenario, servable=servable)


def test_unloading_waits_for_what_runs() -> None:
    servable = HeldServable()

    async def scenario(batched: BatchedServable) -> None:
        leaving = asyncio.ensure_future(ask(batched))
        await servable.wait_running()
        leaving.cancel()
        unloading = asyncio.ensure_future(unload(batched))
        await asyncio.sleep(0)
        assert not servable.is_unloaded
        servable.gate.set()
        await unloading
        assert servable.is_unloaded

    # A toy that ran after its unload would fail an assertion of its own.
    play(scenario, servable=servable)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_failed_requests_tensors_are_let_go_with_its_error(is_late: bool) -> None:
    class Failing(HeldServable):
        def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
            super().run(signature_name, inputs=inputs, outputs=outputs)
            raise Unavailable("device lost")

    servable = Failing()

    async def scenario(batched: BatchedServable) -> None:
        freed = threading.Event()
        tensor = X.copy()
        weakref.finalize(tensor, freed.set)
        inputs = {"x": tensor}
        del tensor
        deadline = SystemClock().now() + 0.01 if is_late else None
        if not is_late:
            servable.gate.set()
        with pytest.raises(DeadlineExceeded if is_late else Unavailable):
            await batched.run("serving_default", inputs=inputs, outputs=("y",), deadline=deadline)
        del inputs
        servable.gate.set()
        assert await asyncio.to_thread(freed.wait, PATIENCE_S)

    play(scenario, servable=servable)


def test_threads_are_as_many_as_cpus_unless_said_otherwise() -> None:
    assert BatchingOptions(num_threads=3).pool_size == 3
    assert BatchingOptions().pool_size >= 1
