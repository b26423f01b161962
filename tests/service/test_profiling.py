import asyncio
import threading
from collections.abc import Callable

import pytest

from aspira.contracts.errors import Internal, InvalidArgument
from aspira.runtimes.profiler import Profile
from aspira.service.profiling import ProfileOrder, ProfilingService

PROFILE = Profile(b"spans", is_empty=False)
LONG = ProfileOrder("s", duration_s=500)
PATIENCE_S = 30


class Profiler:
    """Stands in for TensorFlow's; `began` and `ended` tell of the thread that profiles."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()
        self.outcomes: list[bool] = []

    def take(self, wait: Callable[[], bool]) -> Profile | None:
        self.began.set()
        is_wanted = wait()
        self.outcomes.append(is_wanted)
        self.ended.set()
        return PROFILE if is_wanted else None

    async def wait_began(self) -> None:
        assert await asyncio.to_thread(self.began.wait, PATIENCE_S)


def run(scenario: Callable[[ProfilingService, Profiler], object]) -> None:
    async def act() -> None:
        profiler = Profiler()
        profiling = ProfilingService(profiler.take)
        await scenario(profiling, profiler)  # type: ignore[misc]
        profiling.stop()

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))


def test_a_profile_is_taken_for_as_long_as_was_asked() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        assert await profiling.profile(ProfileOrder("s", duration_s=0.01)) == PROFILE
        assert await profiling.profile(ProfileOrder("s", duration_s=0)) == PROFILE

    run(scenario)


def test_one_profile_at_a_time_and_then_the_next() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        first = asyncio.create_task(profiling.profile(LONG))
        await profiler.wait_began()
        with pytest.raises(Internal) as caught:
            await profiling.profile(LONG)
        assert caught.value.message == "Another profiling session active."
        profiling.terminate("s")
        assert await first == PROFILE
        assert await profiling.profile(ProfileOrder("t", duration_s=0)) == PROFILE

    run(scenario)


def test_only_the_session_that_is_named_is_terminated() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        profiling.terminate("s")
        task = asyncio.create_task(profiling.profile(LONG))
        await profiler.wait_began()
        profiling.terminate("other")
        assert not profiler.ended.is_set()
        profiling.terminate("s")
        assert await task == PROFILE

    run(scenario)


def test_a_profile_whose_client_left_is_thrown_away() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        task = asyncio.create_task(profiling.profile(LONG))
        await profiler.wait_began()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await asyncio.to_thread(profiler.ended.wait, PATIENCE_S)
        assert profiler.outcomes == [False]
        assert await profiling.profile(ProfileOrder("t", duration_s=0)) == PROFILE

    run(scenario)


def test_a_start_to_come_is_waited_for_and_can_be_given_up() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        task = asyncio.create_task(profiling.profile(LONG._replace(start_s=2**40)))
        await asyncio.sleep(0)
        assert not profiler.began.is_set()
        profiling.terminate("s")
        assert await task == PROFILE

    run(scenario)


def test_a_stop_ends_a_profile_with_what_there_is() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        task = asyncio.create_task(profiling.profile(LONG))
        await profiler.wait_began()
        profiling.stop()
        assert await task == PROFILE

    run(scenario)


def test_a_profile_without_end_is_refused() -> None:
    async def scenario(profiling: ProfilingService, profiler: Profiler) -> None:
        with pytest.raises(InvalidArgument, match="too long; at most 600 s"):
            await profiling.profile(ProfileOrder("s", duration_s=601))

    run(scenario)
