"""Refuses a step that would lead a runner outside its memory: a defect, but one to stop here."""

import numpy as np

from aspira.contracts.errors import Internal, InvalidArgument
from aspira.llm.runner import BlockPayload, Runner, StepBatch


def check_batch(batch: StepBatch, *, runner: Runner) -> None:
    """See that tokens belong to sequences, and sequences have room, within the runner's bounds.

    Raises:
        Internal: the step is not as `StepBatch` says.
    """
    if len(batch.tokens) == 0 or batch.sequence_begins[-1] != len(batch.tokens):
        raise Internal("A step must have tokens, each of one sequence")
    lengths = batch.past_lens + np.diff(batch.sequence_begins)
    room = np.diff(batch.block_begins) * runner.block_size
    if (room < lengths).any() or batch.block_begins[-1] != len(batch.block_ids):
        raise Internal("A step must name blocks for all tokens of its sequences")
    for ids, bound, what in (
        (batch.tokens, runner.vocab_size, "token"),
        (batch.block_ids, runner.num_blocks, "cache block"),
        (batch.sampled_rows, len(batch.tokens), "row"),
    ):
        # Without its sign a negative id is a large one.
        if len(ids) and ids.view(f"u{ids.itemsize}").max() >= bound:
            raise Internal(f"A step names a {what} outside 0 to {bound - 1}")


def check_payload(payload: BlockPayload, *, num_blocks: int, block_bytes: int) -> None:
    """See that a payload is one of so many blocks.

    Raises:
        InvalidArgument: it is not.
    """
    if payload.shape != (num_blocks, block_bytes):
        raise InvalidArgument(
            f"A payload of shape {payload.shape} is not that of {num_blocks} blocks of "
            f"{block_bytes} bytes; was it exported by another model?"
        )
