import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from aspira.batching.completions import Completions
from aspira.batching.scheduler import RunWork, Scheduler, Work
from aspira.contracts.errors import Internal, InvalidArgument
from aspira.contracts.tensors import Tensors
from aspira.testing.clock import JumpClock

PATIENCE_S = 20.0


class Desk:
    """A scheduler and what hands work to it."""

    def __init__(self, run: RunWork, *, num_threads: int) -> None:
        self.clock = JumpClock()
        self._loop = asyncio.get_running_loop()
        self.scheduler = Scheduler(
            run,
            num_threads=num_threads,
            name="m-1",
            clock=self.clock,
            completions=Completions(self._loop),
        )

    def submit(
        self, name: str, *, inputs: Tensors | None = None, deadline: float | None = None
    ) -> asyncio.Future[Tensors]:
        future: asyncio.Future[Tensors] = self._loop.create_future()
        self.scheduler.submit(Work(name, inputs or {}, ("y",), deadline, future))
        return future

    async def close(self) -> None:
        await self._loop.run_in_executor(None, self.scheduler.close)


def play(
    scenario: Callable[[Desk], Awaitable[None]], *, run: RunWork, num_threads: int = 1
) -> None:
    async def act() -> None:
        desk = Desk(run, num_threads=num_threads)
        await scenario(desk)
        await desk.close()

    before = set(threading.enumerate())
    asyncio.run(act())
    assert set(threading.enumerate()) <= before


def answer(work: Work) -> Tensors:
    return {"y": np.array(work.signature_name)}


def threads_of(scheduler_name: str) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(f"{scheduler_name}-")]


class Recorder:
    """Runs work in order and notes it; work named `hold` waits for the gate."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.gate = threading.Event()
        self.is_held = threading.Event()

    def run(self, work: Work) -> Tensors:
        self.names.append(work.signature_name)
        if work.signature_name == "hold":
            self.is_held.set()
            assert self.gate.wait(PATIENCE_S)
        return answer(work)

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


def test_the_work_is_handed_on_as_it_was_submitted() -> None:
    seen: list[Work] = []

    def run(work: Work) -> Tensors:
        seen.append(work)
        return answer(work)

    async def scenario(desk: Desk) -> None:
        inputs = {"x": np.zeros(3)}
        await desk.submit("s", inputs=inputs, deadline=5.0)
        (work,) = seen
        assert work[:4] == ("s", inputs, ("y",), 5.0)
        assert work.inputs is inputs

    play(scenario, run=run)


def test_an_error_reaches_its_own_request_only() -> None:
    def run(work: Work) -> Tensors:
        if work.signature_name == "bad":
            raise InvalidArgument("wrong shape")
        return answer(work)

    async def scenario(desk: Desk) -> None:
        futures = [desk.submit(name) for name in ("a", "bad", "b")]
        await asyncio.wait(futures)
        assert [str(futures[index].result()["y"]) for index in (0, 2)] == ["a", "b"]
        with pytest.raises(InvalidArgument, match="wrong shape"):
            await futures[1]

    play(scenario, run=run)


def test_a_foreign_exception_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    def run(work: Work) -> Tensors:
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
        held = desk.submit("hold", deadline=10.0)
        await recorder.wait_held()
        late = desk.submit("late", deadline=10.0)
        in_time = desk.submit("in time", deadline=10.5)
        desk.clock.jump(10.0)
        recorder.gate.set()
        await asyncio.gather(held, in_time)
        assert recorder.names == ["hold", "in time"]
        assert not late.done()

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
        assert threads_of("m-1") == []
        assert len(await asyncio.gather(*futures)) == 3

    play(scenario, run=recorder.run)


def test_closing_waits_for_what_runs() -> None:
    recorder = Recorder()

    async def scenario(desk: Desk) -> None:
        future = desk.submit("hold")
        await recorder.wait_held()
        future.cancel()
        closing = asyncio.ensure_future(desk.close())
        assert threads_of("m-1") != []
        recorder.gate.set()
        await closing
        assert threads_of("m-1") == []

    play(scenario, run=recorder.run)


def test_closing_twice_or_unused_is_harmless() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.close()
        await desk.close()
        assert threads_of("m-1") == []

    play(scenario, run=answer)


def test_threads_start_as_work_comes_in_and_are_bounded() -> None:
    barrier = threading.Barrier(4)

    def meet(work: Work) -> Tensors:
        if work.signature_name == "meet":
            barrier.wait(PATIENCE_S)
        return answer(work)

    async def scenario(desk: Desk) -> None:
        assert threads_of("m-1") == []
        await asyncio.gather(*(desk.submit("meet") for _ in range(12)))
        assert len(threads_of("m-1")) == 4
        await asyncio.gather(*(desk.submit("pass") for _ in range(100)))
        assert len(threads_of("m-1")) == 4

    play(scenario, run=meet, num_threads=4)


@pytest.mark.parametrize(("num_threads", "num_works"), [(1, 3), (2, 2), (4, 4), (8, 4), (3, 9)])
def test_as_much_runs_at_once_as_there_are_threads(num_threads: int, num_works: int) -> None:
    running = threading.Semaphore(0)
    gate = threading.Event()

    def hold(work: Work) -> Tensors:
        running.release()
        assert gate.wait(PATIENCE_S)
        return answer(work)

    async def scenario(desk: Desk) -> None:
        futures = [desk.submit("hold") for _ in range(num_works)]
        for _ in range(min(num_threads, num_works)):
            started = asyncio.to_thread(running.acquire, timeout=PATIENCE_S)
            assert await started
        gate.set()
        await asyncio.gather(*futures)

    play(scenario, run=hold, num_threads=num_threads)


def test_whatever_a_runtime_raises_the_request_ends() -> None:
    def leave(_work: Work) -> Tensors:
        raise SystemExit(3)

    async def scenario(desk: Desk) -> None:
        for _ in range(2):
            with pytest.raises(Internal, match="SystemExit: 3"):
                await desk.submit("x")

    play(scenario, run=leave)


def test_one_request_at_a_time_needs_few_threads() -> None:
    async def scenario(desk: Desk) -> None:
        await desk.submit("first")
        assert len(threads_of("m-1")) == 1

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
    def run(work: Work) -> Tensors:
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
