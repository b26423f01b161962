"""An engine stepped by hand: what each step does, and that every request ends once."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from aspira.contracts.errors import (
    Cancelled,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    ServingError,
    Unavailable,
)
from aspira.contracts.events import GenerationEnded, GenerationStepEnded
from aspira.contracts.generation import FinishReason, SamplingParameters, TimeLimits, Usage
from aspira.llm.runner import Runner, RunnerLost, StepBatch
from aspira.llm.sampler import PackedMask
from aspira.testing.clock import JumpClock
from aspira.testing.toy_decoder import ToyDecoder, continuation
from aspira.testing.toy_tokenizer import ByteTokenizer
from generation_toys import GREEDY, OPTIONS, Received, SteppedEngine, make_request

PROMPT = [3, 1, 4, 1, 5]
SEEDED = SamplingParameters(temperature=1.0, seed=11)


def expected(prompt: list[int], num_tokens: int = 8) -> list[int]:
    return continuation(prompt, num_tokens=num_tokens, vocab_size=257)


def fail_at(step: int, error: Exception) -> Callable[[StepBatch], None]:
    """Raises in one step, counted from 1."""
    num_steps = 0

    def count(_: StepBatch) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == step:
            raise error

    return count


def test_a_request_gets_its_tokens_and_one_end() -> None:
    engine = SteppedEngine()
    received = engine.submit(make_request(PROMPT))
    assert engine.run() == 8
    assert received.tokens() == expected(PROMPT)
    assert received.finish_reason is FinishReason.LENGTH
    assert received.deltas[-1].usage == Usage(5, 8, 0)
    assert received.error is None
    engine.check_idle()


def test_each_step_gives_each_sequence_a_token() -> None:
    engine = SteppedEngine()
    streams = [engine.submit(make_request([*PROMPT, i])) for i in range(4)]
    for num_tokens in range(1, 9):
        engine.step()
        assert [len(received.tokens()) for received in streams] == [num_tokens] * 4
    engine.check_idle()


def test_choices_share_the_prompt_and_differ_by_seed() -> None:
    engine = SteppedEngine()
    request = make_request(list(range(17)), num_choices=3, sampling=SEEDED, max_tokens=12)
    received = engine.submit(request)
    engine.step()
    engine.step()
    assert engine.scheduler.blocks.num_held < 3 * 5
    engine.run()
    choices = [received.tokens(choice) for choice in range(3)]
    assert len({tuple(tokens) for tokens in choices}) == 3
    assert [len(tokens) for tokens in choices] == [12] * 3
    usages = [delta.usage for delta in received.deltas if delta.usage is not None]
    assert usages == [Usage(17, 36, 0)]
    assert [d.finish_reason for d in received.deltas].count(FinishReason.LENGTH) == 3
    engine.check_idle()


def test_greedy_choices_are_all_the_same() -> None:
    engine = SteppedEngine()
    received = engine.submit(make_request(PROMPT, num_choices=3))
    engine.run()
    assert [received.tokens(choice) for choice in range(3)] == [expected(PROMPT)] * 3


def test_one_choice_may_end_before_another() -> None:
    """Seeds that draw the stop token at different times."""
    engine = SteppedEngine(lambda: ToyDecoder(vocab_size=5))
    request = make_request([1, 2], num_choices=4, sampling=SEEDED, max_tokens=40)
    stops = replace(request.stops, token_ids=frozenset({3}))
    received = engine.submit(replace(request, stops=stops))
    engine.run()
    lengths = {len(received.tokens(choice)) for choice in range(4)}
    assert len(lengths) > 1
    assert len(received.ends) == 1
    engine.check_idle()


@pytest.mark.parametrize("num_mates", [0, 5])
def test_a_seed_says_the_same_whatever_else_is_in_the_batch(num_mates: int) -> None:
    def say(mates: int) -> list[int]:
        engine = SteppedEngine()
        others = [engine.submit(make_request([i, 7], sampling=SEEDED)) for i in range(mates)]
        received = engine.submit(make_request(PROMPT, sampling=SEEDED, max_tokens=20))
        engine.run()
        assert all(len(other.ends) == 1 for other in others)
        return received.tokens()

    assert say(num_mates) == say(2)


def test_without_a_seed_each_request_says_something_else() -> None:
    engine = SteppedEngine()
    sampling = SamplingParameters(temperature=1.0)
    streams = [engine.submit(make_request(PROMPT, sampling=sampling)) for _ in range(2)]
    engine.run()
    assert streams[0].tokens() != streams[1].tokens()


def test_penalties_count_what_the_choice_has_said() -> None:
    engine = SteppedEngine(lambda: ToyDecoder(vocab_size=7))
    penalized = replace(GREEDY, presence_penalty=2.0, frequency_penalty=2.0)
    received = engine.submit(make_request([1], sampling=penalized, max_tokens=7))
    engine.run()
    assert sorted(received.tokens()) == list(range(7))


def test_an_abort_frees_blocks_before_the_next_step() -> None:
    engine = SteppedEngine()
    received, other = engine.submit(make_request(PROMPT)), engine.submit(make_request([9]))
    engine.step()
    engine.abort(received)
    engine.abort(received)
    assert engine.scheduler.num_running == 1
    assert isinstance(received.error, Cancelled)
    engine.run()
    assert other.tokens() == expected([9])
    engine.check_idle()


def test_an_abort_in_the_queue_frees_its_place() -> None:
    engine = SteppedEngine(options=replace(OPTIONS, max_sequences=1))
    engine.submit(make_request(PROMPT))
    waiting = engine.submit(make_request(PROMPT))
    engine.step()
    assert engine.gate.num_requests == 1
    engine.abort(waiting)
    assert engine.gate.num_requests == 0
    engine.run()
    engine.check_idle()


def test_an_abandoned_stream_is_an_abort() -> None:
    engine = SteppedEngine()
    received = engine.submit(make_request(PROMPT))
    engine.step()
    received.is_gone = True
    engine.step()
    assert isinstance(received.error, Cancelled)
    engine.check_idle()


@pytest.mark.parametrize(
    ("times", "num_tokens", "message"),
    [
        (TimeLimits(queue_s=2.5), 0, "in the queue for 2.5 s"),
        (TimeLimits(first_token_s=2.5), 0, "no token after 2.5 s"),
        (TimeLimits(total_s=2.5), 0, "not complete after 2.5 s"),
    ],
)
def test_time_limits_hold_in_the_queue(times: TimeLimits, num_tokens: int, message: str) -> None:
    clock = JumpClock()
    engine = SteppedEngine(
        lambda: ToyDecoder(before_step=lambda _: clock.jump(1.0)),
        options=replace(OPTIONS, max_sequences=1),
        clock=clock,
    )
    first = engine.submit(make_request(PROMPT))
    late = engine.submit(make_request(PROMPT, times=times))
    engine.run()
    assert isinstance(late.error, DeadlineExceeded)
    assert message in late.error.message
    assert len(late.tokens()) == num_tokens
    assert first.tokens() == expected(PROMPT)
    engine.check_idle()


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (TimeLimits(total_s=2.5), "not complete after 2.5 s"),
        (TimeLimits(gap_s=0.5), "no further token for 0.5 s"),
    ],
)
def test_time_limits_hold_in_the_stream(times: TimeLimits, message: str) -> None:
    clock = JumpClock()
    engine = SteppedEngine(lambda: ToyDecoder(before_step=lambda _: clock.jump(1.0)), clock=clock)
    received = engine.submit(make_request(PROMPT, times=times))
    engine.step()
    clock.jump(0.6)
    engine.run()
    assert isinstance(received.error, DeadlineExceeded)
    assert message in received.error.message
    assert 1 <= len(received.tokens()) < 8
    engine.check_idle()


@pytest.mark.parametrize(
    "times",
    [
        TimeLimits(queue_s=9, first_token_s=9, gap_s=9, total_s=9),
        TimeLimits(queue_s=0.5, first_token_s=1.5),
    ],
)
def test_limits_that_were_kept_end_nothing(times: TimeLimits) -> None:
    """The request starts at once and gets a token each second for eight seconds."""
    clock = JumpClock()
    engine = SteppedEngine(lambda: ToyDecoder(before_step=lambda _: clock.jump(1.0)), clock=clock)
    received = engine.submit(make_request(PROMPT, times=times))
    engine.run()
    assert received.error is None


def test_a_step_that_fails_once_costs_nobody_anything() -> None:
    engine = SteppedEngine(lambda: ToyDecoder(before_step=fail_at(2, ValueError("bad step"))))
    streams = [engine.submit(make_request([i], num_choices=2)) for i in range(4)]
    engine.run()
    for i, received in enumerate(streams):
        assert received.error is None
        assert received.tokens(0) == received.tokens(1) == expected([i])
    engine.check_idle()


@pytest.mark.parametrize("num_choices", [1, 2])
def test_a_request_that_makes_steps_fail_fails_alone(num_choices: int) -> None:
    def fail_on_poison(batch: StepBatch) -> None:
        if 99 in batch.tokens:
            raise ValueError("poison")

    engine = SteppedEngine(lambda: ToyDecoder(before_step=fail_on_poison))
    good = engine.submit(make_request(PROMPT))
    bad = engine.submit(make_request([1, 99], num_choices=num_choices))
    also_good = engine.submit(make_request([9]))
    engine.run()
    assert isinstance(bad.error, Internal)
    assert "poison" in bad.error.message
    assert good.tokens() == expected(PROMPT)
    assert also_good.tokens() == expected([9])
    engine.check_idle()
    assert engine.steps.recorder.statistics.num_runner_rebuilds == 0


def test_a_runner_lost_while_a_step_is_made_again_is_replaced() -> None:
    num_steps = 0

    def fail(_: StepBatch) -> None:
        nonlocal num_steps
        num_steps += 1
        if num_steps == 2:
            raise ValueError("bad step")
        if num_steps == 4:
            raise RunnerLost("the process died")

    engine = SteppedEngine(lambda: ToyDecoder(before_step=fail))
    streams = [engine.submit(make_request([i])) for i in range(3)]
    engine.run()
    assert {type(received.error) for received in streams} == {Unavailable}
    engine.check_idle()


def test_the_pace_of_steps_tells_when_a_full_queue_will_have_room() -> None:
    clock = JumpClock()
    engine = SteppedEngine(
        lambda: ToyDecoder(before_step=lambda _: clock.jump(1.0)),
        options=replace(OPTIONS, max_queued_requests=1),
        clock=clock,
    )
    engine.submit(make_request([1]))
    engine.run()
    engine.submit(make_request([1] * 100))
    with pytest.raises(ResourceExhausted) as caught:
        engine.submit(make_request([1]))
    assert caught.value.retry_after_s == pytest.approx(50.0)


def test_logits_that_are_no_numbers_fail_their_request_only() -> None:
    engine = SteppedEngine(lambda: ToyDecoder(corrupting_token=200))
    bad = engine.submit(make_request([1, 2, 3, 4, 200, 6, 7, 8, 9]))
    good = engine.submit(make_request(PROMPT))
    engine.run()
    assert isinstance(bad.error, Internal)
    assert "not numbers" in bad.error.message
    assert good.tokens() == expected(PROMPT)
    engine.check_idle()
    assert engine.steps.recorder.statistics.corrupted_requests == 1
    # Not even the beginning of what it computed is used again.
    again = engine.submit(make_request([1, 2, 3, 4, 5]))
    engine.run()
    usage = again.deltas[-1].usage
    assert usage is not None
    assert usage.cached_tokens == 0


def lose_runner_at(*steps: int) -> tuple[Callable[[], Runner], list[ToyDecoder]]:
    """Makes runners; the n-th is lost in the n-th of `steps`, later ones are not."""
    made: list[ToyDecoder] = []
    left = list(steps)

    def make() -> Runner:
        step = left.pop(0) if left else 10**9
        made.append(ToyDecoder(before_step=fail_at(step, RunnerLost("the process died"))))
        return made[-1]

    return make, made


def test_a_lost_runner_is_replaced_and_who_waited_goes_on() -> None:
    make_runner, made = lose_runner_at(3)
    engine = SteppedEngine(make_runner, options=replace(OPTIONS, max_sequences=1))
    failed, waiting = engine.submit(make_request(PROMPT)), engine.submit(make_request([9]))
    engine.run()
    assert isinstance(failed.error, Unavailable)
    assert "retry" in failed.error.message
    assert waiting.tokens() == expected([9])
    assert [runner.is_closed for runner in made] == [True, False]
    engine.check_idle()
    assert engine.steps.recorder.statistics.num_runner_rebuilds == 1


def test_who_was_preempted_when_the_runner_was_lost_goes_on_where_it_was() -> None:
    lost = fail_at(3, RunnerLost("the process died"))
    engine = SteppedEngine(
        lambda: ToyDecoder(num_blocks=4, before_step=lost),
        options=replace(OPTIONS, reserved_output_tokens=0),
    )
    old, young = (engine.submit(make_request([i] * 8)) for i in (1, 2))
    engine.run()
    assert engine.scheduler.num_preemptions == 1
    assert isinstance(old.error, Unavailable)
    assert young.tokens() == expected([2] * 8)
    engine.check_idle()


def test_nothing_of_the_old_cache_is_used_with_a_new_runner() -> None:
    make_runner, _ = lose_runner_at(9)
    engine = SteppedEngine(make_runner)
    before = engine.submit(make_request(PROMPT))
    engine.run()
    lost = engine.submit(make_request([9]))
    engine.run()
    assert isinstance(lost.error, Unavailable)
    after = engine.submit(make_request(PROMPT))
    engine.run()
    usage = after.deltas[-1].usage
    assert usage is not None
    assert (usage.cached_tokens, after.tokens()) == (0, before.tokens())


def test_a_runner_that_never_works_is_not_replaced_for_ever() -> None:
    make_runner, made = lose_runner_at(1, 1, 1, 1)
    engine = SteppedEngine(make_runner)
    engine.submit(make_request(PROMPT))
    with pytest.raises(Unavailable, match="before its first step"):
        engine.run()
    assert len(made) == 1


def test_those_in_the_step_are_told_before_another_runner_is_made() -> None:
    make_runner, made = lose_runner_at(3)
    engine = SteppedEngine(make_runner, options=replace(OPTIONS, max_sequences=1))
    failed, waiting = engine.submit(make_request(PROMPT)), engine.submit(make_request([9]))
    for _ in range(3):
        engine.step()
    assert isinstance(failed.error, Unavailable)
    assert engine.steps.is_runner_lost
    assert len(made) == 1
    engine.step()
    assert not engine.steps.is_runner_lost
    assert len(made) == 2
    engine.run()
    assert waiting.tokens() == expected([9])


def test_another_runner_is_made_though_nobody_waits() -> None:
    make_runner, made = lose_runner_at(3)
    engine = SteppedEngine(make_runner)
    engine.submit(make_request(PROMPT))
    engine.run()
    assert len(made) == 2
    engine.check_idle()
    assert engine.steps.recorder.statistics.num_runner_rebuilds == 1


def test_a_block_that_leaks_is_noticed_when_all_requests_have_ended() -> None:
    engine = SteppedEngine()
    engine.submit(make_request(PROMPT))
    engine.scheduler.blocks.allocate(1)
    with pytest.raises(Internal, match="1 cache blocks are held, and by no request"):
        engine.run()


def test_a_runner_that_fails_at_everything_is_lost() -> None:
    num_made = 0

    def make() -> Runner:
        nonlocal num_made
        num_made += 1
        num_steps = 0

        def fail(_: StepBatch) -> None:
            nonlocal num_steps
            num_steps += 1
            if num_made == 1 and num_steps > 8:
                raise ValueError("again")

        return ToyDecoder(before_step=fail)

    engine = SteppedEngine(make)
    streams: list[Received] = []
    for i in range(5):
        streams.append(engine.submit(make_request([i])))
        engine.run()
    assert [type(s.error) for s in streams] == [type(None), Unavailable, *[type(None)] * 3]
    assert num_made == 2
    engine.check_idle()


class Letters:
    """Allows a fixed sequence of tokens; cannot go on after `num_good` of them, given an error."""

    def __init__(
        self, tokens: list[int], *, error: ServingError | None = None, num_good: int = 0
    ) -> None:
        self._tokens = list(tokens)
        self._error = error
        self._num_good = num_good

    def allowed(self) -> PackedMask:
        mask = np.zeros(257, bool)
        mask[self._tokens[:1]] = True
        return np.packbits(mask, bitorder="little")

    def accept(self, token_id: int) -> None:
        if self._error is not None and self._num_good == 0:
            raise self._error
        self._num_good -= 1
        assert token_id == self._tokens.pop(0)

    @property
    def is_complete(self) -> bool:
        return not self._tokens


def test_a_constraint_restricts_each_token_and_ends_the_choice() -> None:
    engine = SteppedEngine()
    request = make_request(PROMPT, num_choices=2)
    received = engine.submit(request, make_constraint=lambda: Letters([5, 6, 7]))
    free = engine.submit(make_request(PROMPT))
    engine.run()
    assert received.tokens(0) == received.tokens(1) == [5, 6, 7]
    assert received.finish_reason is FinishReason.STOP
    assert free.tokens() == expected(PROMPT)
    engine.check_idle()


@pytest.mark.parametrize(
    ("constraint", "error"),
    [
        (
            Letters([]),
            InvalidArgument("The grammar and the biases of this request allow no token here"),
        ),
        (Letters([1], error=InvalidArgument("too deep")), InvalidArgument("too deep")),
    ],
)
def test_a_constraint_that_cannot_go_on_ends_its_request(
    constraint: Letters, error: ServingError
) -> None:
    engine = SteppedEngine()
    received = engine.submit(make_request(PROMPT), make_constraint=lambda: constraint)
    other = engine.submit(make_request(PROMPT))
    engine.run()
    assert str(received.error) == str(error)
    assert other.error is None
    engine.check_idle()


class Defective(Letters):
    """Fails when it is asked."""

    def allowed(self) -> PackedMask:
        raise ValueError("no mask")


def test_a_constraint_with_a_defect_ends_its_request_only() -> None:
    engine = SteppedEngine()
    bad = engine.submit(make_request([1]), make_constraint=lambda: Defective([1]))
    good = engine.submit(make_request(PROMPT))
    engine.run()
    assert str(bad.error) == "INTERNAL: ValueError: no mask"
    assert good.tokens() == expected(PROMPT)
    engine.check_idle()


class BrokenTokenizer(ByteTokenizer):
    """Cannot decode one token."""

    def decode(self, token_ids: Sequence[int]) -> str:
        if 9 in token_ids:
            raise ValueError("no such token")
        return super().decode(token_ids)


def test_a_tokenizer_that_fails_ends_its_request_only() -> None:
    engine = SteppedEngine(vocabulary=BrokenTokenizer())
    good = engine.submit(make_request(PROMPT))
    bad = engine.submit(make_request(PROMPT), make_constraint=lambda: Letters([1, 9, 2]))
    engine.run()
    assert isinstance(bad.error, Internal)
    assert "no such token" in bad.error.message
    assert good.error is None
    engine.check_idle()


def test_choices_that_end_in_one_step_end_their_request_once() -> None:
    engine = SteppedEngine()
    errors = iter((InvalidArgument("too deep"), None))
    received = engine.submit(
        make_request([1], num_choices=2),
        make_constraint=lambda: Letters([1, 2, 3], error=next(errors), num_good=1),
    )
    engine.run()
    assert isinstance(received.error, InvalidArgument)
    assert [delta.choice for delta in received.deltas] == [0]
    engine.check_idle()


def gaps_in_steps(engine: SteppedEngine, received: Received) -> list[int]:
    """Steps between a stream's tokens, while it goes on."""
    gaps, gap, before = [], 0, len(received.tokens())
    while not received.ends:
        engine.step()
        gap += 1
        if len(received.tokens()) > before:
            gaps.append(gap)
            gap, before = 0, len(received.tokens())
    return gaps


def test_a_maximum_length_prompt_does_not_hold_up_other_streams() -> None:
    """Time passes with tokens: a step of at most so many is the longest gap."""
    clock = JumpClock()
    options = replace(OPTIONS, max_sequences=8, max_step_tokens=16)
    engine = SteppedEngine(
        lambda: ToyDecoder(
            num_blocks=400, max_context=400, before_step=lambda b: clock.jump(len(b.tokens))
        ),
        options=options,
        clock=clock,
    )
    streams = [engine.submit(make_request([i], max_tokens=60)) for i in range(4)]
    engine.step()
    engine.submit(make_request([5] * 399, max_tokens=1))
    assert gaps_in_steps(engine, streams[0]) == [1] * 59
    steps = [e for e in engine.events if isinstance(e, GenerationStepEnded)]
    assert max(gap for step in steps for gap in step.gaps_s) <= 16


def test_a_short_prompt_does_not_wait_behind_long_ones() -> None:
    options = replace(OPTIONS, max_step_tokens=32)
    engine = SteppedEngine(lambda: ToyDecoder(num_blocks=500), options=options)
    long = [engine.submit(make_request([i + 1] * 240, max_tokens=1)) for i in range(4)]
    engine.step()
    short = engine.submit(make_request([9] * 8))
    engine.step()
    assert len(short.tokens()) == 1
    engine.run()
    assert all(received.error is None for received in long)


def test_short_prompts_without_end_do_not_starve_a_long_one() -> None:
    options = replace(OPTIONS, max_sequences=8, max_step_tokens=16)
    engine = SteppedEngine(lambda: ToyDecoder(num_blocks=500), options=options)
    long = engine.submit(make_request([3] * 240, max_tokens=1))
    for i in range(60):
        engine.submit(make_request([i] * 16, max_tokens=1))
        if long.ends:
            break
        engine.step()
    assert len(long.tokens()) == 1


def test_events_tell_when_things_happened() -> None:
    clock = JumpClock()
    engine = SteppedEngine(
        lambda: ToyDecoder(before_step=lambda _: clock.jump(1.0)),
        options=replace(OPTIONS, max_sequences=1),
        clock=clock,
    )
    engine.submit(make_request([1], max_tokens=2))
    engine.submit(make_request([2, 3], max_tokens=3, num_choices=1))
    engine.run()
    ended = [event for event in engine.events if isinstance(event, GenerationEnded)]
    assert [(e.queue_s, e.prefill_s, e.decode_s, e.total_s) for e in ended] == [
        (0.0, 1.0, 1.0, 2.0),
        (2.0, 1.0, 2.0, 5.0),
    ]
    assert [(e.prompt_tokens, e.completion_tokens, e.outcome) for e in ended] == [
        (1, 2, "length"),
        (2, 3, "length"),
    ]
    steps = [event for event in engine.events if isinstance(event, GenerationStepEnded)]
    assert [s.first_tokens_s for s in steps] == [(1.0,), (), (3.0,), (), ()]
    assert [s.gaps_s for s in steps] == [(), (1.0,), (), (1.0,), (1.0,)]
    assert [s.num_tokens for s in steps] == [1, 1, 2, 1, 1]


def test_statistics_count_tokens_and_requests() -> None:
    engine = SteppedEngine()
    engine.submit(make_request(PROMPT))
    engine.submit(make_request(PROMPT, num_choices=2))
    engine.steps.update_statistics()
    assert engine.steps.recorder.statistics.num_requests_waiting == 2
    engine.step()
    engine.steps.update_statistics()
    assert engine.steps.recorder.statistics.num_requests_running == 2
    assert engine.steps.recorder.statistics.kv_cache_usage > 0
    engine.run()
    engine.check_idle()
    statistics = engine.steps.recorder.statistics
    assert (statistics.prompt_tokens, statistics.generation_tokens) == (10, 24)
    assert statistics.requests_ended == {"length": 2}
    assert statistics.kv_cache_usage == 0
