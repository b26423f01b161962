"""The scheduler by itself: who is in a step, who holds which blocks. Tokens are made up."""

from dataclasses import replace

import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.llm.options import EngineOptions
from aspira.llm.scheduler import Scheduler
from aspira.llm.sequence import Rank, Sequence, SequenceState
from aspira.llm.step_plan import StepPlan

OPTIONS = EngineOptions(
    max_sequences=8, max_step_tokens=16, reserved_output_tokens=0, watermark=0.0
)


def make_scheduler(num_blocks: int, *, options: EngineOptions = OPTIONS) -> Scheduler:
    return Scheduler(num_blocks, block_size=4, options=options)


def make_sequence(
    number: int, *, num_prompt: int, max_new: int = 100, first: int | None = None
) -> Sequence:
    begin = 1000 * number if first is None else first
    tokens = list(range(begin, begin + num_prompt))
    return Sequence(Rank(0, number, 0), tuple(tokens), num_prompt + max_new)


def step(scheduler: Scheduler) -> dict[Sequence, int]:
    """Make a step in which each sampled sequence draws the token 7."""
    plan = scheduler.plan()
    scheduler.blocks.check()
    drawn = {row.sequence: 7 for row in plan.rows if row.is_sampled}
    shares = {row.sequence: row.num_tokens for row in plan.rows}
    scheduler.commit(plan, drawn=drawn)
    scheduler.blocks.check()
    return shares


def test_an_empty_scheduler_plans_nothing() -> None:
    assert make_scheduler(4).plan() == StepPlan(())


def test_next_tokens_go_first_and_prompts_share_the_rest() -> None:
    scheduler = make_scheduler(64)
    old, long, short = (
        make_sequence(1, num_prompt=4),
        make_sequence(2, num_prompt=60),
        make_sequence(3, num_prompt=5),
    )
    scheduler.add(old)
    assert step(scheduler) == {old: 4}
    scheduler.add(long)
    assert step(scheduler) == {old: 1, long: 15}
    scheduler.add(short)
    assert step(scheduler) == {old: 1, long: 10, short: 5}
    assert step(scheduler) == {old: 1, short: 1, long: 14}


def test_a_step_never_exceeds_its_tokens() -> None:
    scheduler = make_scheduler(100)
    for number in range(8):
        scheduler.add(make_sequence(number, num_prompt=20))
    for _ in range(30):
        assert sum(step(scheduler).values()) <= 16


def test_no_more_sequences_than_allowed_run_at_once() -> None:
    scheduler = make_scheduler(100, options=replace(OPTIONS, max_sequences=2))
    for number in range(4):
        scheduler.add(make_sequence(number, num_prompt=1))
    assert len(step(scheduler)) == 2
    assert (scheduler.num_running, scheduler.num_waiting) == (2, 2)


def test_priority_comes_before_age() -> None:
    scheduler = make_scheduler(100, options=replace(OPTIONS, max_sequences=1))
    late, urgent = make_sequence(1, num_prompt=1), make_sequence(2, num_prompt=1)
    urgent.rank = Rank(-1, 2, 0)
    scheduler.add(late)
    scheduler.add(urgent)
    assert step(scheduler) == {urgent: 1}


def test_a_prefix_is_shared_and_its_last_token_computed_again() -> None:
    scheduler = make_scheduler(64)
    first = make_sequence(1, num_prompt=12, first=0)
    scheduler.add(first)
    step(scheduler)
    second = make_sequence(2, num_prompt=12, first=0)
    scheduler.add(second)
    assert step(scheduler) == {first: 1, second: 4}
    assert second.block_ids[:2] == first.block_ids[:2]
    assert second.block_ids[2] != first.block_ids[2]
    assert (second.num_cached_tokens, scheduler.num_hit_tokens) == (8, 8)


def test_drawn_tokens_are_a_prefix_for_the_next_turn() -> None:
    scheduler = make_scheduler(64)
    first = make_sequence(1, num_prompt=6)
    scheduler.add(first)
    for _ in range(7):
        step(scheduler)
    scheduler.remove(first)
    next_prompt = (*first.prompt, *first.drawn, 1, 2, 3)
    next_turn = Sequence(Rank(0, 2, 0), next_prompt, len(next_prompt) + 100)
    scheduler.add(next_turn)
    step(scheduler)
    assert next_turn.num_cached_tokens == 12


def test_without_the_cache_nothing_is_shared() -> None:
    scheduler = make_scheduler(64, options=replace(OPTIONS, prefix_cache=False))
    for number in (1, 2):
        scheduler.add(make_sequence(number, num_prompt=8, first=0))
        step(scheduler)
    assert scheduler.num_hit_tokens == 0
    for sequence in scheduler.sequences:
        scheduler.remove(sequence)
    assert scheduler.blocks.num_free == 64


def test_removal_frees_at_once_and_may_be_repeated() -> None:
    scheduler = make_scheduler(64)
    running, waiting = make_sequence(1, num_prompt=6), make_sequence(2, num_prompt=6)
    scheduler.add(running)
    step(scheduler)
    scheduler.add(waiting)
    for _ in range(2):
        scheduler.remove(running)
        scheduler.remove(waiting)
    assert scheduler.blocks.num_held == 0
    assert scheduler.plan() == StepPlan(())


def test_a_newcomer_waits_until_there_is_room_for_what_it_may_need() -> None:
    scheduler = make_scheduler(8, options=replace(OPTIONS, reserved_output_tokens=8))
    first, second = make_sequence(1, num_prompt=8), make_sequence(2, num_prompt=12)
    scheduler.add(first)
    scheduler.add(second)
    assert step(scheduler) == {first: 8}
    assert scheduler.blocks.num_available == 6
    scheduler.remove(first)
    assert step(scheduler) == {second: 12}


def test_the_watermark_is_left_to_those_that_run() -> None:
    options = replace(OPTIONS, watermark=0.5)
    scheduler = make_scheduler(8, options=options)
    first, second = make_sequence(1, num_prompt=8), make_sequence(2, num_prompt=12)
    scheduler.add(first)
    scheduler.add(second)
    assert set(step(scheduler)) == {first}


def test_what_does_not_fit_yet_is_overtaken_only_so_often() -> None:
    options = replace(OPTIONS, max_overtakes=2, max_step_tokens=64)
    scheduler = make_scheduler(10, options=options)
    running, big = make_sequence(0, num_prompt=16), make_sequence(1, num_prompt=36)
    small = [make_sequence(number, num_prompt=1, max_new=2) for number in range(2, 7)]
    for sequence in (running, big, *small):
        scheduler.add(sequence)
    assert set(step(scheduler)) == {running, *small[:2]}
    for sequence in (*small[:2], running):
        scheduler.remove(sequence)
    assert big in step(scheduler)


def run_short() -> tuple[Scheduler, Sequence, Sequence]:
    """Two sequences that fill four blocks, so that the next step is short of one."""
    scheduler = make_scheduler(4)
    old, young = make_sequence(1, num_prompt=8), make_sequence(2, num_prompt=8)
    scheduler.add(old)
    scheduler.add(young)
    step(scheduler)
    assert scheduler.blocks.num_available == 0
    return scheduler, old, young


def test_the_youngest_gives_up_its_tail_and_keeps_its_head() -> None:
    scheduler, old, young = run_short()
    head = young.block_ids[0]
    assert step(scheduler) == {old: 1}
    assert (young.state, young.block_ids, young.num_computed) == (
        SequenceState.PREEMPTED,
        [head],
        4,
    )
    assert scheduler.num_preemptions == 1


def test_who_was_preempted_waits_for_all_the_room_it_may_need_and_nobody_overtakes_it() -> None:
    scheduler = make_scheduler(6, options=replace(OPTIONS, max_step_tokens=64))
    old, middle, young = (make_sequence(number, num_prompt=8, max_new=16) for number in range(3))
    for sequence in (old, middle, young):
        scheduler.add(sequence)
    step(scheduler)
    assert step(scheduler) == {old: 1, middle: 1}
    assert young.state is SequenceState.PREEMPTED
    scheduler.remove(middle)
    scheduler.add(make_sequence(3, num_prompt=1, max_new=1))
    for _ in range(3):
        assert step(scheduler) == {old: 1}
        assert scheduler.blocks.num_available == 3
    scheduler.remove(old)
    assert young in step(scheduler)
    assert scheduler.num_preemptions == 1


def test_who_waits_anyway_gives_first() -> None:
    scheduler = make_scheduler(9, options=replace(OPTIONS, max_step_tokens=64))
    old, middle = make_sequence(1, num_prompt=8), make_sequence(2, num_prompt=8)
    young = make_sequence(3, num_prompt=16)
    for sequence in (old, middle, young):
        scheduler.add(sequence)
    kept = []
    for _ in range(6):
        step(scheduler)
        kept.append(len(young.block_ids))
    assert kept == [4, 3, 3, 3, 3, 1]
    assert scheduler.num_preemptions == 1


def test_the_first_in_rank_is_never_preempted() -> None:
    scheduler = make_scheduler(6)
    sequences = [make_sequence(number, num_prompt=7, max_new=17) for number in range(3)]
    for sequence in sequences:
        scheduler.add(sequence)
    for sequence in sequences:
        while sequence.num_tokens < sequence.max_total_tokens:
            assert sequence in step(scheduler)
            assert not sequences[0].was_preempted
        scheduler.remove(sequence)


def test_blocks_kept_by_an_older_sequence_do_not_block_the_younger_for_ever() -> None:
    """When the oldest ends, who was preempted for it resumes, before those that run."""
    scheduler = make_scheduler(6)
    oldest, middle, young = (make_sequence(n, num_prompt=7, max_new=17) for n in range(3))
    for sequence in (oldest, middle, young):
        scheduler.add(sequence)
    while not middle.was_preempted:
        step(scheduler)
    scheduler.remove(oldest)
    assert middle in step(scheduler)


def test_the_younger_waits_rather_than_take_from_the_older() -> None:
    scheduler = make_scheduler(4)
    old, young = make_sequence(1, num_prompt=5), make_sequence(2, num_prompt=8)
    scheduler.add(old)
    scheduler.add(young)
    step(scheduler)
    assert step(scheduler) == {old: 1}
    assert (old.was_preempted, young.was_preempted) == (False, False)
    assert len(young.block_ids) == 2


def test_who_kept_blocks_resumes_before_younger_ones_that_lack_them() -> None:
    """Else the younger could take no more blocks, and the older would wait for it for ever."""
    scheduler = make_scheduler(12, options=replace(OPTIONS, max_sequences=4, max_step_tokens=4))
    old, next_old = make_sequence(1, num_prompt=2), make_sequence(2, num_prompt=2)
    scheduler.add(old)
    scheduler.add(next_old)
    step(scheduler)
    middle = make_sequence(3, num_prompt=20, max_new=28)
    young = make_sequence(4, num_prompt=20, max_new=28)
    scheduler.add(middle)
    scheduler.add(young)
    while not middle.was_preempted:
        step(scheduler)
    assert (young.state, young.block_ids) == (SequenceState.RUNNING, [])
    assert middle.block_ids
    scheduler.remove(old)
    scheduler.remove(next_old)
    assert middle in step(scheduler)
    while middle.num_tokens < middle.max_total_tokens:
        assert middle in step(scheduler)


def test_cached_blocks_that_are_to_be_used_are_not_room_for_others() -> None:
    scheduler = make_scheduler(6, options=replace(OPTIONS, reserved_output_tokens=4))
    gone = make_sequence(1, num_prompt=8, first=0)
    scheduler.add(gone)
    step(scheduler)
    scheduler.remove(gone)
    running = make_sequence(2, num_prompt=8)
    scheduler.add(running)
    step(scheduler)
    newcomer = make_sequence(3, num_prompt=13, first=0)
    scheduler.add(newcomer)
    assert newcomer not in step(scheduler)


def test_a_sibling_waits_for_the_prompt_and_shares_it() -> None:
    scheduler = make_scheduler(64)
    leader = make_sequence(1, num_prompt=20, first=0)
    sibling = make_sequence(2, num_prompt=20, first=0)
    sibling.leader = leader
    scheduler.add(leader)
    scheduler.add(sibling)
    assert step(scheduler) == {leader: 16}
    assert step(scheduler) == {leader: 4}
    assert step(scheduler) == {leader: 1, sibling: 4}
    assert sibling.block_ids[:4] == leader.block_ids[:4]


def test_a_sibling_does_not_wait_for_a_leader_that_is_gone() -> None:
    scheduler = make_scheduler(64)
    leader, sibling = make_sequence(1, num_prompt=20), make_sequence(2, num_prompt=20)
    sibling.leader = leader
    scheduler.add(leader)
    scheduler.add(sibling)
    step(scheduler)
    scheduler.remove(leader)
    assert step(scheduler) == {sibling: 16}


def test_what_a_corrupt_sequence_computed_is_not_found() -> None:
    scheduler = make_scheduler(64)
    corrupt = make_sequence(1, num_prompt=8, first=0)
    scheduler.add(corrupt)
    step(scheduler)
    scheduler.remove_corrupt(corrupt)
    assert (scheduler.blocks.num_cached, scheduler.blocks.num_free) == (0, 64)


def test_a_new_cache_has_everybody_begin_again() -> None:
    scheduler = make_scheduler(64)
    sequences = [make_sequence(number, num_prompt=6) for number in range(2)]
    for sequence in sequences:
        scheduler.add(sequence)
    step(scheduler)
    scheduler.restart(32)
    assert step(scheduler) == dict.fromkeys(sequences, 7)
    assert scheduler.blocks.num_blocks == 32


@pytest.mark.parametrize(
    "changes",
    [{"max_sequences": 0}, {"max_step_tokens": 7}, {"watermark": 1.0}, {"watermark": -0.1}],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="must be"):
        replace(OPTIONS, **changes)
