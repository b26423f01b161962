from aspira.llm.batch import assemble_batch
from aspira.llm.sequence import Rank, Sequence
from aspira.llm.step_plan import PlannedRow, StepPlan


def make_sequence(tokens: list[int], *, num_computed: int, block_ids: list[int]) -> Sequence:
    sequence = Sequence(Rank(0, 0, 0), tuple(tokens), max_total_tokens=100)
    sequence.num_computed, sequence.block_ids = num_computed, block_ids
    return sequence


def test_sequences_lie_one_behind_the_other() -> None:
    decode = make_sequence([5, 6, 7], num_computed=2, block_ids=[9])
    chunk = make_sequence([1, 2, 3, 4, 5, 6], num_computed=1, block_ids=[3, 4])
    batch = assemble_batch(StepPlan((PlannedRow(decode, 1), PlannedRow(chunk, 3))))
    assert batch.tokens.tolist() == [7, 2, 3, 4]
    assert batch.positions.tolist() == [2, 1, 2, 3]
    assert batch.past_lens.tolist() == [2, 1]
    assert batch.sequence_begins.tolist() == [0, 1, 4]
    assert batch.block_ids.tolist() == [9, 3, 4]
    assert batch.block_begins.tolist() == [0, 1, 3]


def test_logits_are_wanted_only_after_the_last_known_token() -> None:
    rows = (
        PlannedRow(make_sequence([1, 2, 3], num_computed=0, block_ids=[0]), 2),
        PlannedRow(make_sequence([1, 2, 3], num_computed=1, block_ids=[1]), 2),
        PlannedRow(make_sequence([1], num_computed=0, block_ids=[2]), 1),
    )
    assert assemble_batch(StepPlan(rows)).sampled_rows.tolist() == [3, 4]
