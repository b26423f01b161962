import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from aspira.batching.execution import Run
from aspira.batching.options import BatchingMode, BatchingOptions, BatchingParameters
from aspira.batching.queue import Kind, Work
from aspira.batching.scheduler import Scheduler
from aspira.contracts.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)
from aspira.contracts.events import BatchEnded, EventBus
from aspira.contracts.tensors import Tensors
from aspira.testing.clock import JumpClock
from batching_toys import M_1, make_context

PATIENCE_S = 20.0


class Desk:
    """A scheduler and what hands work to it."""

    def __init__(
        self,
        run: Run,
        *,
        num_threads: int,
        parameters: BatchingParameters | None = None,
        options: BatchingOptions | None = None,
    ) -> None:
        self.clock = JumpClock()
        self.batches: list[BatchEnded] = []
        events = EventBus()
        events.subscribe_batches(self.batches.append)
        self._loop = asyncio.get_running_loop()
        self.scheduler = Scheduler(
            run,
            servable_id=M_1,
            options=options or BatchingOptions(num_threads=num_threads),
            parameters=parameters,
            context=make_context(clock=self.clock, events=events),
        )

    def submit(
        self,
        name: str,
        *,
        inputs: Tensors | None = None,
        deadline: float | None = None,
        is_merged: bool = False,
    ) -> asyncio.Future[Tensors]:
        future: asyncio.Future[Tensors] = self._loop.create_future()
        kind = Kind(name, ("y",), () if is_merged else None)
        num_rows = len(inputs["x"]) if is_merged and inputs else 1
        self.scheduler.submit(Work(kind, inputs or {}, num_rows, 8, deadline, future))
        return future

    async def close(self) -> None:
        await self._loop.run_in_executor(None, self.scheduler.close)


def play(
    scenario: Callable[[Desk], Awaitable[None]],
    *,
    run: Run,
    num_threads: int = 1,
    parameters: BatchingParameters | None = None,
    options: BatchingOptions | None = None,
) -> None:
    async def act() -> None:
        desk = Desk(run, num_threads=num_threads, parameters=parameters, options=options)
        await scenario(desk)
        await desk.close()

    before = set(threading.enumerate())
    asyncio.run(act())
    assert set(threading.enumerate()) <= before


def answer(kind: Kind, inputs: Tensors) -> Tensors:
    return {"y": np.array(kind.signature_name)}


def threads_of(scheduler_name: str) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(f"{scheduler_name}-")]


class Recorder:
    """Runs work in order and notes it; work named `hold` waits for the gate."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.gate = threading.Event()
        self.is_held = threading.Event()

    def run(self, kind: Kind, inputs: Tensors) -> Tensors:
        self.names.append(kind.signature_name)
        if kind.signature_name == "hold":
            self.is_held.set()
            assert self.gate.wait(PATIENCE_S)
        return answer(kind, inputs)

    async def wait_held(self) -> None:
        assert await asyncio.to_thread(self.is_held.wait, PATIENCE_S)


def test_one_thread_runs_work_in_order() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        names = [str(number) for number in range(200)]
        answers = await asyncio.gather(*(desk.submit(name) for name in names))
        assert [str(outputs["y"]) for outputs in answers] == names
        assert recorder.names == names

    play(scenario, run=recorder.run)


def test_the_inputs_are_handed_on_as_they_were_submitted() -> None:
    seen: list[Tensors] = []

    def run(kind: Kind, inputs: Tensors) -> Tensors:
        seen.append(inputs)
        return answer(kind, inputs)

    async def scenario(desk: Desk) -> None:
        inputs = {"x": np.zeros(3)}
        await desk.submit("s", inputs=inputs, deadline=5.0)
        assert seen == [inputs]
        assert seen[0] is inputs

    play(scenario, run=run)


def test_an_error_reaches_its_own_request_only() -> None:
    def run(kind: Kind, inputs: Tensors) -> Tensors:
        if kind.signature_name == "bad":
            raise InvalidArgument("wrong shape")
        return answer(kind, inputs)

    async def scenario(desk: Desk) -> None:
        futures = [desk.submit(name) for name in ("a", "bad", "b")]
        await asyncio.wait(futures)
        assert [str(futures[index].result()["y"]) for index in (0, 2)] == ["a", "b"]
        with pytest.raises(InvalidArgument, match="wrong shape"):
            await futures[1]

    play(scenario, run=run)


def test_a_foreign_exception_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    def run(kind: Kind, inputs: Tensors) -> Tensors:
        raise ZeroDivisionError("by zero")

    async def scenario(desk: Desk) -> None:
        with pytest.raises(Internal) as caught:
            await desk.submit("a")
        assert caught.value.message == "ZeroDivisionError: by zero"
        with pytest.raises(Internal):
            await desk.submit("the thread still works")

    play(scenario, run=run)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_what_nobody_waits_for_is_not_run() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        held = desk.submit("hold")
        await recorder.wait_held()
        cancelled = desk.submit("cancelled")
        failed = desk.submit("failed")
        cancelled.cancel()
        failed.set_exception(Internal("gave up"))
        last = desk.submit("last")
        recorder.gate.set()
        await asyncio.gather(held, last)
        assert recorder.names == ["hold", "last"]
        with pytest.raises(Internal, match="gave up"):
            await failed

    play(scenario, run=recorder.run)


def test_what_is_late_is_not_run() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        held = desk.submit("hold")
        await recorder.wait_held()
        late = desk.submit("late", deadline=10.0)
        in_time = desk.submit("in time", deadline=10.5)
        desk.clock.jump(10.0)
        recorder.gate.set()
        await asyncio.gather(held, in_time)
        assert recorder.names == ["hold", "in time"]
        with pytest.raises(DeadlineExceeded, match="Timed out waiting for notification"):
            await late

    play(scenario, run=recorder.run)


def test_closing_runs_what_is_queued_and_ends_the_threads() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        futures = [desk.submit("hold"), desk.submit("a"), desk.submit("b")]
        await recorder.wait_held()
        closing = asyncio.ensure_future(desk.close())
        recorder.gate.set()
        await closing
        assert recorder.names == ["hold", "a", "b"]
        assert threads_of("batched-1") == []
        assert len(await asyncio.gather(*futures)) == 3

    play(scenario, run=recorder.run)


def test_closing_waits_for_what_runs() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        future = desk.submit("hold")
        await recorder.wait_held()
        future.cancel()
        closing = asyncio.ensure_future(desk.close())
        assert threads_of("batched-1") != []
        recorder.gate.set()
        await closing
        assert threads_of("batched-1") == []

    play(scenario, run=recorder.run)


def test_closing_twice_or_unused_is_harmless() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.close()
        await desk.close()
        assert threads_of("batched-1") == []

    play(scenario, run=answer)


def test_threads_start_as_work_comes_in_and_are_bounded() -> None:
    barrier = threading.Barrier(4)

    def meet(kind: Kind, inputs: Tensors) -> Tensors:
        if kind.signature_name == "meet":
            barrier.wait(PATIENCE_S)
        return answer(kind, inputs)

    async def scenario(desk: Desk) -> None:
        assert threads_of("batched-1") == []
        await asyncio.gather(*(desk.submit("meet") for _ in range(12)))
        assert len(threads_of("batched-1")) == 4
        await asyncio.gather(*(desk.submit("pass") for _ in range(100)))
        assert len(threads_of("batched-1")) == 4

    play(scenario, run=meet, num_threads=4)


@pytest.mark.parametrize(("num_threads", "num_works"), [(1, 3), (2, 2), (4, 4), (8, 4), (3, 9)])
def test_as_much_runs_at_once_as_there_are_threads(num_threads: int, num_works: int) -> None:
    running = threading.Semaphore(0)
    gate = threading.Event()

    def hold(kind: Kind, inputs: Tensors) -> Tensors:
        running.release()
        assert gate.wait(PATIENCE_S)
        return answer(kind, inputs)

    async def scenario(desk: Desk) -> None:
        futures = [desk.submit("hold") for _ in range(num_works)]
        for _ in range(min(num_threads, num_works)):
            started = asyncio.to_thread(running.acquire, timeout=PATIENCE_S)
            assert await started
        gate.set()
        await asyncio.gather(*futures)

    play(scenario, run=hold, num_threads=num_threads)


def test_whatever_a_runtime_raises_the_request_ends() -> None:
    def leave(kind: Kind, inputs: Tensors) -> Tensors:
        raise SystemExit(3)

    async def scenario(desk: Desk) -> None:
        for _ in range(2):
            with pytest.raises(Internal, match="SystemExit: 3"):
                await desk.submit("x")

    play(scenario, run=leave)


def test_one_request_at_a_time_needs_few_threads() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.submit("first")
        assert len(threads_of("batched-1")) == 1

    play(scenario, run=answer, num_threads=8)


def test_a_finished_requests_tensors_are_let_go_while_the_thread_waits() -> None:
    async def scenario(desk: Desk) -> None:
        freed = threading.Event()
        tensor = np.zeros(3)
        weakref.finalize(tensor, freed.set)
        await desk.submit("a", inputs={"x": tensor})
        del tensor
        assert await asyncio.to_thread(freed.wait, PATIENCE_S)

    play(scenario, run=answer)


def test_a_failed_requests_tensors_are_let_go_with_its_error() -> None:
    def run(kind: Kind, inputs: Tensors) -> Tensors:
        raise InvalidArgument("wrong")

    async def scenario(desk: Desk) -> None:
        freed = threading.Event()
        tensor = np.zeros(3)
        weakref.finalize(tensor, freed.set)
        with pytest.raises(InvalidArgument):
            await desk.submit("a", inputs={"x": tensor})
        del tensor
        assert await asyncio.to_thread(freed.wait, PATIENCE_S)

    play(scenario, run=run)


class Doubler:
    """Doubles `x`; its first run waits for the gate."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.is_held = threading.Event()

    def run(self, kind: Kind, inputs: Tensors) -> Tensors:
        self.sizes.append(len(inputs["x"]))
        if len(self.sizes) == 1:
            self.is_held.set()
            assert self.gate.wait(PATIENCE_S)
        return {"y": inputs["x"] * 2}  # type: ignore[operator]


def submit_rows(desk: Desk, *values: int, deadline: float | None = None) -> asyncio.Future[Tensors]:
    return desk.submit("s", inputs={"x": np.array(values)}, deadline=deadline, is_merged=True)


def test_requests_gather_while_a_run_is_in_progress() -> None:
    doubler = Doubler()

    async def scenario(desk: Desk) -> None:
        first = submit_rows(desk, 1)
        assert await asyncio.to_thread(doubler.is_held.wait, PATIENCE_S)
        others = [submit_rows(desk, number, number) for number in range(2, 7)]
        assert desk.scheduler.statistics().num_waiting == 0 or not first.done()
        doubler.gate.set()
        answers = await asyncio.gather(first, *others)
        assert [outputs["y"].tolist() for outputs in answers] == [
            [2],
            *([number * 2] * 2 for number in range(2, 7)),
        ]
        assert doubler.sizes == [1, 10]

    play(scenario, run=doubler.run, parameters=BatchingParameters())


def test_batches_are_told_of() -> None:
    doubler = Doubler()

    async def scenario(desk: Desk) -> None:
        first = submit_rows(desk, 1)
        assert await asyncio.to_thread(doubler.is_held.wait, PATIENCE_S)
        others = [submit_rows(desk, 2), submit_rows(desk, 3, 4)]
        desk.clock.jump(0.5)
        doubler.gate.set()
        await asyncio.gather(first, *others)
        await desk.close()
        assert desk.batches == [
            BatchEnded(M_1, (1,), (0.0,), 1, 1, 4, 0.5),
            BatchEnded(M_1, (1, 2), (0.5, 0.5), 1, 3, 4, 0.0),
        ]

    parameters = BatchingParameters(max_batch_size=4, allowed_batch_sizes=(4,))
    play(scenario, run=doubler.run, parameters=parameters)


def test_a_batch_waits_as_long_as_it_is_told_to() -> None:
    doubler = Doubler()
    doubler.gate.set()

    async def scenario(desk: Desk) -> None:
        futures = [submit_rows(desk, 1)]
        await desk.submit("other", inputs={"x": np.array([1])})
        assert not futures[0].done()
        # Fills it.
        futures += [submit_rows(desk, number) for number in range(3)]
        await asyncio.gather(*futures)
        assert 4 in doubler.sizes

    parameters = BatchingParameters(max_batch_size=4, batch_timeout_s=3600.0)
    play(scenario, run=doubler.run, parameters=parameters, num_threads=2)


def test_a_batch_that_waited_long_enough_runs_though_it_is_not_full() -> None:
    doubler = Doubler()
    doubler.gate.set()

    async def scenario(desk: Desk) -> None:
        waiting = submit_rows(desk, 1)
        desk.clock.jump(1.0)
        assert (await waiting)["y"].tolist() == [2]

    parameters = BatchingParameters(batch_timeout_s=0.02)
    play(scenario, run=doubler.run, parameters=parameters)


def test_a_full_queue_refuses() -> None:
    doubler = Doubler()

    async def scenario(desk: Desk) -> None:
        first = submit_rows(desk, 1)
        assert await asyncio.to_thread(doubler.is_held.wait, PATIENCE_S)
        waiting = [submit_rows(desk, 1, 2) for _ in range(2)]
        with pytest.raises(Unavailable, match="currently 2 batches enqueued") as caught:
            submit_rows(desk, 1)
        assert caught.value.retry_after_s is not None
        doubler.gate.set()
        await asyncio.gather(first, *waiting)

    parameters = BatchingParameters(max_batch_size=2, max_enqueued_batches=2)
    play(scenario, run=doubler.run, parameters=parameters)


def test_the_queue_of_single_runs_has_a_bound_too() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        held = desk.submit("hold")
        await recorder.wait_held()
        waiting = [desk.submit("a"), desk.submit("b")]
        with pytest.raises(ResourceExhausted, match="2 requests wait for this model"):
            desk.submit("c")
        recorder.gate.set()
        await asyncio.gather(held, *waiting)

    options = BatchingOptions(num_threads=1, max_queued_requests=2)
    play(scenario, run=recorder.run, options=options)


def test_a_slow_run_does_not_keep_work_that_was_thought_quick_from_idle_threads() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        for _ in range(20):
            desk.clock.jump(1e-6)
            await desk.submit("quick")
        held = desk.submit("hold")
        await recorder.wait_held()
        quick = desk.submit("quick")
        desk.clock.jump(0.01)
        await quick
        assert not held.done()
        recorder.gate.set()
        await held

    play(scenario, run=recorder.run, num_threads=2)


def test_what_was_put_back_is_counted_when_it_is_run() -> None:
    async def scenario(desk: Desk) -> None:
        def run(kind: Kind, inputs: Tensors) -> Tensors:
            desk.clock.jump(5e-3 if kind.signature_name == "slow" else 1e-6)
            return answer(kind, inputs)

        desk.scheduler._runner._run = run
        for _ in range(20):
            await desk.submit("quick")
        # A good many are taken at once, since runs were quick so far.
        await asyncio.gather(*(desk.submit("slow") for _ in range(100)))
        await desk.close()
        assert sum(batch.num_rows for batch in desk.batches) == 120
        assert sum(len(batch.waits_s) for batch in desk.batches) == 120
        assert desk.scheduler._history.drain_rate.seconds_per_row == pytest.approx(5e-3, rel=0.05)

    play(scenario, run=answer, parameters=BatchingParameters())


def test_batches_grow_to_what_the_latency_target_allows() -> None:
    sizes = []

    async def scenario(desk: Desk) -> None:
        def run(kind: Kind, inputs: Tensors) -> Tensors:
            sizes.append(len(inputs["x"]))
            desk.clock.jump(1e-3 + 1e-3 * len(inputs["x"]))
            return {"y": inputs["x"]}

        desk.scheduler._runner._run = run
        for _ in range(30):
            await asyncio.gather(*(submit_rows(desk, number) for number in range(64)))
        statistics = desk.scheduler.statistics()
        assert statistics.cost is not None
        assert statistics.cost.run_s(20) == pytest.approx(0.021, rel=0.1)
        assert 5 <= statistics.max_batch_rows <= 19
        assert max(sizes[-5:]) <= 19

    options = BatchingOptions(num_threads=1, mode=BatchingMode.AUTO.value, latency_target_s=0.040)
    play(scenario, run=answer, parameters=BatchingParameters(), options=options)


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario(desk: Desk) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            futures = [desk.submit("a"), desk.submit("b")]
            await asyncio.wait(futures)
        for future in futures:
            with pytest.raises(ResourceExhausted, match="cannot start a thread"):
                await future
        await desk.submit("later")

    play(scenario, run=answer)
