from aspira.llm.heartbeat import Heartbeat
from aspira.testing.clock import JumpClock


def test_only_work_without_steps_is_a_stall() -> None:
    clock = JumpClock()
    heartbeat = Heartbeat(clock, timeout_s=10)
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
