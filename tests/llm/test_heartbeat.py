from collections.abc import Callable

import pytest

from aspira.llm.heartbeat import Heartbeat
from aspira.testing.clock import JumpClock


def after_steps(*durations_s: float, longest_s: float = 100.0) -> tuple[Heartbeat, JumpClock]:
    """A heartbeat that has seen these steps, at the beginning of another one."""
    clock = JumpClock()
    heartbeat = Heartbeat(clock, longest_s=longest_s)
    for duration_s in durations_s:
        heartbeat.beat()
        clock.jump(duration_s)
        heartbeat.learn()
    heartbeat.beat()
    return heartbeat, clock


def test_only_work_without_steps_is_a_stall() -> None:
    clock = JumpClock()
    heartbeat = Heartbeat(clock, longest_s=10)
    clock.jump(100)
    assert not heartbeat.is_stalled
    for _ in range(5):
        heartbeat.beat()
        clock.jump(10)
        assert not heartbeat.is_stalled
    clock.jump(1)
    assert heartbeat.is_stalled
    heartbeat.rest()
    assert not heartbeat.is_stalled


@pytest.mark.parametrize(
    ("durations_s", "limit_s"),
    [((), 100.0), ((0.01, 0.02), 10.0), ((2.0, 0.1), 40.0), ((30.0,), 100.0)],
)
def test_what_a_step_may_take_follows_from_the_slowest_one(
    durations_s: tuple[float, ...], limit_s: float
) -> None:
    heartbeat, clock = after_steps(*durations_s)
    clock.jump(limit_s)
    assert not heartbeat.is_stalled
    clock.jump(0.1)
    assert heartbeat.is_stalled
    assert heartbeat.limit_s == limit_s


def test_a_stall_is_given_up_when_no_step_takes_as_long() -> None:
    heartbeat, clock = after_steps(0.01)
    clock.jump(100)
    assert heartbeat.is_stalled
    assert not heartbeat.is_stuck
    clock.jump(0.1)
    assert heartbeat.is_stuck
    heartbeat.beat()
    assert not heartbeat.is_stuck


def test_what_has_a_limit_of_its_own_is_no_step() -> None:
    heartbeat, clock = after_steps(0.01)
    heartbeat.beat(limit_s=600)
    clock.jump(599)
    assert not heartbeat.is_stalled
    clock.jump(2)
    assert heartbeat.is_stuck
    heartbeat.beat()
    assert heartbeat.limit_s == 10


class AskedClock(JumpClock):
    """Lets something happen on another thread while the time is being asked for."""

    meanwhile: Callable[[], None] | None = None

    def now(self) -> float:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().now()


@pytest.mark.parametrize("is_last", [False, True])
def test_a_long_wait_that_ends_while_it_is_looked_at_is_no_stall(is_last: bool) -> None:
    clock = AskedClock()
    heartbeat = Heartbeat(clock, longest_s=100)
    heartbeat.beat()
    clock.jump(0.01)
    heartbeat.learn()
    heartbeat.beat(limit_s=600)
    clock.jump(500)
    clock.meanwhile = heartbeat.rest if is_last else heartbeat.beat
    assert not heartbeat.is_stalled
