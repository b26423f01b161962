"""A cache far too small, always evicting and preempting, never changes what is said.

The toy decoder answers from what its blocks hold, so a wrong block is a wrong answer; and what it
ought to say is worked out without any cache.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest

from aspira.contracts.errors import Cancelled, DeadlineExceeded
from aspira.contracts.events import GenerationEnded, GenerationStepEnded
from aspira.contracts.generation import GenerateRequest, TimeLimits
from aspira.llm.options import EngineOptions
from aspira.testing.clock import JumpClock
from aspira.testing.toy_decoder import ToyDecoder, continuation
from generation_toys import GREEDY, Received, SteppedEngine, make_request

VOCAB_SIZE = 11
NUM_BLOCKS = 14
CONTEXT = 40


def make_engine(rng: random.Random) -> SteppedEngine:
    clock = JumpClock()
    options = EngineOptions(
        max_sequences=rng.choice((2, 5, 8)),
        max_step_tokens=rng.choice((8, 13, 32)),
        reserved_output_tokens=rng.choice((0, 4, 16)),
        watermark=rng.choice((0.0, 0.1)),
        max_overtakes=rng.choice((0, 4)),
        max_queued_requests=10_000,
    )
    return SteppedEngine(
        lambda: ToyDecoder(
            num_blocks=NUM_BLOCKS,
            vocab_size=VOCAB_SIZE,
            max_context=CONTEXT,
            before_step=lambda _: clock.jump(1.0),
        ),
        options=options,
        clock=clock,
    )


def make_prompt(rng: random.Random) -> list[int]:
    """Prompts that begin alike, at every length."""
    shared = [(7 * i) % VOCAB_SIZE for i in range(rng.randrange(30))]
    return [*shared, *(rng.randrange(VOCAB_SIZE) for _ in range(rng.randrange(1, 6)))]


def make_random_request(rng: random.Random, *, arrival: float = 0.0) -> GenerateRequest:
    prompt = make_prompt(rng)
    return make_request(
        prompt,
        max_tokens=rng.randrange(1, CONTEXT - len(prompt) + 1),
        arrival=arrival,
        num_choices=rng.choice((1, 1, 1, 3)),
        priority=rng.choice((0, 0, 0, 1)),
        cache_salt=rng.choice(("", "", "tenant")),
        sampling=GREEDY,
    )


def check_said(request: GenerateRequest, received: Received) -> None:
    for choice in range(request.num_choices):
        tokens = received.tokens(choice)
        said = continuation(request.prompt, num_tokens=len(tokens), vocab_size=VOCAB_SIZE)
        assert tokens == said, f"choice {choice} of {request}"


@pytest.mark.parametrize("seed", range(10))
def test_answers_are_those_without_a_cache(seed: int) -> None:
    rng = random.Random(seed)
    engine = make_engine(rng)
    asked: list[tuple[GenerateRequest, Received]] = []
    while len(asked) < 50 or engine.steps.has_work:
        if len(asked) < 50 and rng.random() < 0.3:
            request = make_random_request(rng)
            asked.append((request, engine.submit(request)))
        engine.step()
    for request, received in asked:
        assert received.error is None
        check_said(request, received)
        assert all(
            len(received.tokens(choice)) == request.max_tokens
            for choice in range(request.num_choices)
        )
    engine.check_idle()
    assert engine.scheduler.num_hit_tokens > 0
    assert engine.scheduler.blocks.num_evictions > 0


def test_the_fuzz_does_preempt() -> None:
    """Otherwise the test above would say little."""
    num_preemptions = 0
    for seed in range(10):
        rng = random.Random(seed)
        engine = make_engine(rng)
        for _ in range(50):
            engine.submit(make_random_request(rng))
        engine.run()
        num_preemptions += engine.scheduler.num_preemptions
    assert num_preemptions > 20


def check_books(engine: SteppedEngine, streams: list[Received]) -> None:
    """What the statistics and events say is what the streams got."""
    statistics = engine.steps.recorder.statistics
    steps = [event for event in engine.events if isinstance(event, GenerationStepEnded)]
    ended = [event for event in engine.events if isinstance(event, GenerationEnded)]
    told = [len(received.tokens(choice)) for received in streams for choice in range(3)]
    assert statistics.requests_accepted == len(ended) == len(streams)
    assert statistics.requests_ended == Counter(event.outcome for event in ended)
    assert statistics.generation_tokens == sum(told)
    assert sum(event.completion_tokens for event in ended) == sum(told)
    assert statistics.num_steps == len(steps)
    num_with_token = sum(any(map(received.tokens, range(3))) for received in streams)
    assert sum(len(step.first_tokens_s) for step in steps) == num_with_token
    assert sum(event.prefill_s is not None for event in ended) == num_with_token
    assert sum(len(step.gaps_s) for step in steps) == sum(told) - sum(map(bool, told))


@pytest.mark.parametrize("seed", range(4))
def test_aborts_disconnects_and_deadlines_leave_nothing_behind(seed: int) -> None:
    """500 requests each, nearly all of which end too soon, at any moment."""
    rng = random.Random(100 + seed)
    engine = make_engine(rng)
    asked: list[tuple[GenerateRequest, Received]] = []
    alive: list[Received] = []
    while len(asked) < 500 or engine.steps.has_work:
        if len(asked) < 500 and rng.random() < 0.7:
            now = engine.clock.now()
            request = make_random_request(rng, arrival=now)
            limits = TimeLimits(
                **{
                    name: float(rng.randrange(1, 30))
                    for name in ("queue_s", "first_token_s", "gap_s", "total_s")
                    if rng.random() < 0.3
                }
            )
            request = replace(request, times=limits)
            asked.append((request, engine.submit(request)))
            alive.append(asked[-1][1])
        while alive and rng.random() < 0.4:
            received = alive.pop(rng.randrange(len(alive)))
            if rng.random() < 0.5:
                engine.abort(received)
            else:
                received.is_gone = True
        engine.step()
    endings = {type(received.error) for _, received in asked}
    assert endings == {type(None), Cancelled, DeadlineExceeded}
    for request, received in asked:
        check_said(request, received)
    engine.check_idle()
    check_books(engine, [received for _, received in asked])
    last = engine.submit(make_request([1, 2, 3]))
    engine.run()
    assert last.tokens() == continuation([1, 2, 3], num_tokens=8, vocab_size=VOCAB_SIZE)
