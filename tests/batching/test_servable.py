import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

import numpy as np
import pytest

from aspira.batching.options import BatchingOptions, BatchingParameters
from aspira.batching.servable import BatchedServable
from aspira.contracts.clock import Clock, SystemClock
from aspira.contracts.errors import DataLoss, DeadlineExceeded, InvalidArgument, Unavailable
from aspira.contracts.servable import Loader, Servable
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors
from aspira.testing.clock import JumpClock
from aspira.testing.toy_servable import ToyLoader, ToyServable
from batching_toys import make_batched, make_batching_loader, make_context, unload

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


def load(loader: Loader[Servable], *, clock: Clock) -> BatchedServable:
    options = BatchingOptions(num_threads=1)
    return make_batching_loader(loader, options=options, context=make_context(clock=clock)).load()


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
        loader = make_batching_loader(ToyLoader(), context=make_context())
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


async def run_x(batched: BatchedServable, x: Tensor) -> list[float]:
    outputs = await batched.run("serving_default", inputs={"x": x}, outputs=("y",), deadline=None)
    found: list[float] = outputs["y"].tolist()
    return found


def play_batched(
    scenario: Callable[[BatchedServable], Awaitable[None]],
    *,
    parameters: BatchingParameters,
    servable: Servable | None = None,
) -> None:
    async def act() -> None:
        batched = make_batched(servable or ToyServable(), parameters=parameters)
        await scenario(batched)
        await unload(batched)

    asyncio.run(act())


def test_requests_of_one_shape_share_a_run_and_others_are_not_in_their_way() -> None:
    class Counting(ToyServable):
        sizes: ClassVar[list[tuple[int, ...]]] = []

        def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
            self.sizes.append(inputs["x"].shape)
            return super().run(signature_name, inputs=inputs, outputs=outputs)

    async def scenario(batched: BatchedServable) -> None:
        wide, long = np.zeros((1, 2), np.float32), np.zeros((2, 3), np.float32)
        answers = await asyncio.gather(*(run_x(batched, x) for x in (wide, long, wide, long)))
        assert [np.shape(answer) for answer in answers] == [(1, 2), (2, 3), (1, 2), (2, 3)]
        assert sorted(Counting.sizes) == [(2, 2), (4, 3)]

    play_batched(scenario, parameters=BatchingParameters(num_threads=1), servable=Counting())


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.float32(1), "Batching Run() input tensors must have at least one dimension"),
        (np.zeros(5), "Task size 5 is larger than maximum input batch size 4"),
    ],
)
def test_what_fits_no_batch_is_refused_in_the_originals_words(x: Tensor, text: str) -> None:
    async def scenario(batched: BatchedServable) -> None:
        with pytest.raises(InvalidArgument) as caught:
            await run_x(batched, np.asarray(x))
        assert caught.value.message == text
        assert await run_x(batched, np.zeros(4, np.float32)) == [2.0] * 4

    play_batched(scenario, parameters=BatchingParameters(max_batch_size=4))


def test_a_signature_with_a_fixed_first_dimension_is_served_without_batching() -> None:
    class Fixed(ToyServable):
        @property
        def signatures(self) -> Mapping[str, Signature]:
            spec = TensorSpec(DataType.FLOAT, (1, 2))
            return {"serving_default": Signature({"x": spec}, {"y": spec})}

        def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
            assert inputs["x"].shape == (1, 2)
            return super().run(signature_name, inputs=inputs, outputs=outputs)

    async def scenario(batched: BatchedServable) -> None:
        x = np.zeros((1, 2), np.float32)
        answers = await asyncio.gather(*(run_x(batched, x) for _ in range(9)))
        assert answers == [[[2.0, 2.0]]] * 9

    play_batched(scenario, parameters=BatchingParameters(), servable=Fixed())


def test_the_urgent_overtake_those_that_wait() -> None:
    class Ordered(HeldServable):
        order: ClassVar[list[float]] = []

        def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
            self.order.append(float(inputs["x"][0]))
            return super().run(signature_name, inputs=inputs, outputs=outputs)

    servable = Ordered()

    async def ask_with(batched: BatchedServable, value: float, *, priority: int) -> None:
        await batched.run(
            "serving_default",
            inputs={"x": np.float32([value])},
            outputs=("y",),
            deadline=None,
            priority=priority,
        )

    async def scenario(batched: BatchedServable) -> None:
        first = asyncio.ensure_future(ask(batched))
        await servable.wait_running()
        others = [
            asyncio.ensure_future(ask_with(batched, value, priority=priority))
            for value, priority in ((10, 0), (11, -2), (12, 3))
        ]
        await asyncio.sleep(0)
        servable.gate.set()
        await asyncio.gather(first, *others)
        assert Ordered.order[1:] == [12, 10, 11]

    play(scenario, servable=servable)
