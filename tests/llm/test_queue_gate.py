import pytest

from aspira.contracts.errors import ResourceExhausted
from aspira.llm.options import EngineOptions
from aspira.llm.queue_gate import QueueGate

OPTIONS = EngineOptions(max_queued_requests=3, max_queued_tokens=100)


@pytest.mark.parametrize("queued", [[1, 1, 1], [50, 45]])
def test_a_full_queue_refuses_and_says_how_full(queued: list[int]) -> None:
    gate = QueueGate(OPTIONS)
    for num_tokens in queued:
        gate.enter(num_tokens)
    message = f"{len(queued)} requests with {sum(queued)} tokens are waiting"
    with pytest.raises(ResourceExhausted, match=message):
        gate.enter(6)
    assert gate.num_rejections == 1
    gate.leave(queued[0])
    gate.enter(6)
    assert (gate.num_requests, gate.num_tokens) == (len(queued), sum(queued[1:]) + 6)


def test_an_empty_queue_takes_even_a_prompt_that_is_longer_than_it() -> None:
    QueueGate(OPTIONS).enter(1000)


@pytest.mark.parametrize(
    ("tokens_per_s", "retry_after_s"),
    [(None, 1.0), (10, 5.0), (1_000_000, 1.0), (0.01, 120.0)],
)
def test_when_to_come_back_follows_from_the_pace(
    tokens_per_s: float | None, retry_after_s: float
) -> None:
    gate = QueueGate(OPTIONS)
    gate.enter(100)
    if tokens_per_s is not None:
        gate.note_step(100, duration_s=100 / tokens_per_s)
    with pytest.raises(ResourceExhausted, match="Retry in") as caught:
        gate.enter(1)
    assert caught.value.retry_after_s == pytest.approx(retry_after_s)


def test_the_pace_is_that_of_recent_steps() -> None:
    gate = QueueGate(OPTIONS)
    gate.enter(100)
    gate.note_step(1, duration_s=1.0)
    for _ in range(100):
        gate.note_step(10, duration_s=1.0)
    with pytest.raises(ResourceExhausted) as caught:
        gate.enter(1)
    assert caught.value.retry_after_s == pytest.approx(5.0, rel=0.01)
