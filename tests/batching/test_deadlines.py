import asyncio

import pytest

from aspira.batching.deadlines import DeadlineWatch
from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import DeadlineExceeded
from aspira.contracts.tensors import Tensors
from aspira.testing.clock import JumpClock

AN_HOUR_S = 3600.0


def new_future() -> asyncio.Future[Tensors]:
    return asyncio.get_running_loop().create_future()


def test_what_waits_past_its_deadline_fails() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        watch = DeadlineWatch(clock)
        future = new_future()
        watch.add(future, deadline=clock.now() + 0.01)
        with pytest.raises(DeadlineExceeded, match="Timed out waiting for notification"):
            await future

    asyncio.run(scenario())


def test_a_deadline_in_the_past_fails_at_once() -> None:
    async def scenario() -> None:
        clock = JumpClock()
        clock.jump(AN_HOUR_S)
        watch = DeadlineWatch(clock)
        future = new_future()
        watch.add(future, deadline=1.0)
        with pytest.raises(DeadlineExceeded):
            await future

    asyncio.run(scenario())


def test_an_earlier_deadline_is_not_held_up_by_a_later_one() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        watch = DeadlineWatch(clock)
        later, earlier = new_future(), new_future()
        watch.add(later, deadline=clock.now() + AN_HOUR_S)
        watch.add(earlier, deadline=clock.now() + 0.01)
        with pytest.raises(DeadlineExceeded):
            await earlier
        assert not later.done()
        watch.remove(later)

    asyncio.run(scenario())


def test_a_later_deadline_still_counts_after_an_earlier_one() -> None:
    async def scenario() -> None:
        clock = SystemClock()
        watch = DeadlineWatch(clock)
        earlier, later = new_future(), new_future()
        watch.add(earlier, deadline=clock.now() + 0.01)
        watch.add(later, deadline=clock.now() + 0.02)
        with pytest.raises(DeadlineExceeded):
            await later
        assert earlier.done()
        with pytest.raises(DeadlineExceeded):
            await earlier

    asyncio.run(scenario())


def test_a_timer_that_is_early_by_the_clock_fires_again() -> None:
    async def scenario() -> None:
        clock = JumpClock()
        watch = DeadlineWatch(clock)
        future, probe = new_future(), new_future()
        watch.add(future, deadline=0.01)
        # The loop's time passes, the clock's does not: its owner is not late yet.
        asyncio.get_running_loop().call_later(0.03, probe.set_result, {})
        await probe
        assert not future.done()
        clock.jump(0.01)
        with pytest.raises(DeadlineExceeded):
            await future

    asyncio.run(scenario())


def test_what_is_removed_in_time_never_fails() -> None:
    async def scenario() -> None:
        clock = JumpClock()
        watch = DeadlineWatch(clock)
        removed, other = new_future(), new_future()
        watch.add(removed, deadline=0.01)
        watch.add(other, deadline=0.01)
        watch.remove(removed)
        watch.remove(removed)
        clock.jump(1.0)
        with pytest.raises(DeadlineExceeded):
            await other
        assert not removed.done()

    asyncio.run(scenario())


def test_what_is_done_already_stays_as_it_is() -> None:
    async def scenario() -> None:
        clock = JumpClock()
        watch = DeadlineWatch(clock)
        answered, cancelled, other = new_future(), new_future(), new_future()
        for future in (answered, cancelled, other):
            watch.add(future, deadline=0.01)
        answered.set_result({})
        cancelled.cancel()
        clock.jump(1.0)
        with pytest.raises(DeadlineExceeded):
            await other
        assert answered.result() == {}
        assert cancelled.cancelled()

    asyncio.run(scenario())


def test_requests_in_time_do_not_arm_timers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        delays: list[float] = []

        def arm(delay_s: float, callback: object) -> asyncio.TimerHandle:
            delays.append(delay_s)
            return call_later(delay_s, callback)  # type: ignore[arg-type]

        call_later = loop.call_later
        monkeypatch.setattr(loop, "call_later", arm)
        watch = DeadlineWatch(JumpClock())
        for number in range(100):
            future = new_future()
            watch.add(future, deadline=AN_HOUR_S + number)
            watch.remove(future)
        assert delays == [AN_HOUR_S]

    asyncio.run(scenario())
