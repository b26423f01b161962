"""Lays a plan out as the arrays that a runner takes."""

from itertools import accumulate

import numpy as np

from aspira.llm.runner import StepBatch
from aspira.llm.step_plan import StepPlan


def assemble_batch(plan: StepPlan) -> StepBatch:
    """The flat token axis of one step."""
    tokens: list[int] = []
    positions: list[int] = []
    block_ids: list[int] = []
    for sequence, num_tokens in plan.rows:
        begin, end = sequence.num_computed, sequence.num_computed + num_tokens
        tokens += sequence.tokens(begin, end=end)
        positions += range(begin, end)
        block_ids += sequence.block_ids
    begins = [0, *accumulate(row.num_tokens for row in plan.rows)]
    block_begins = [0, *accumulate(len(row.sequence.block_ids) for row in plan.rows)]
    sampled = [begins[i + 1] - 1 for i, row in enumerate(plan.rows) if row.is_sampled]
    return StepBatch(
        tokens=np.array(tokens, np.int64),
        positions=np.array(positions, np.int64),
        past_lens=np.array([row.sequence.num_computed for row in plan.rows], np.int32),
        sequence_begins=np.array(begins, np.int32),
        block_ids=np.array(block_ids, np.int32),
        block_begins=np.array(block_begins, np.int32),
        sampled_rows=np.array(sampled, np.int32),
    )
