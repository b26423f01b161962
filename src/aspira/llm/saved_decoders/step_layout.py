"""Lays a step out as a SavedModel's decoder takes it: tokens in tiles, contexts in spans."""

import numpy as np
import numpy.typing as npt

from aspira.llm.runner import Int32s, StepBatch
from aspira.llm.saved_decoders.step_inputs import (
    BLOCK_SIZE,
    SPAN_BLOCKS,
    SPAN_TOKENS,
    StepInputs,
)

TILE_TOKENS = 16
"""Of a tile where a sequence has several tokens. More share one read of the cache; fewer waste less
on a sequence that has one."""


def lay_out(batch: StepBatch, *, unused_block: int) -> StepInputs:
    """Exactly what the step needs, without padding. Nobody's tokens are in `unused_block`."""
    positions = batch.positions.astype(np.int32)
    tiles = _Tiles(batch)
    span_counts = positions[tiles.last_tokens] // SPAN_TOKENS + 1
    span_tiles = np.repeat(np.arange(len(span_counts)), span_counts)
    span_indices = _places(span_counts)
    own_blocks = _blocks_of_tokens(batch, positions=positions)
    return StepInputs(
        token_ids=batch.tokens.astype(np.int32),
        positions=positions,
        slots=own_blocks * BLOCK_SIZE + positions % BLOCK_SIZE,
        fresh_blocks=own_blocks[positions % BLOCK_SIZE == 0],
        tile_tokens=tiles.tokens,
        token_tiles=tiles.token_places,
        span_tiles=span_tiles.astype(np.int32),
        span_blocks=_blocks_of_spans(
            batch,
            sequences=tiles.sequences[span_tiles],
            first=span_indices * SPAN_BLOCKS,
            unused_block=unused_block,
        ),
        span_begins=(span_indices * SPAN_TOKENS).astype(np.int32),
        sampled_rows=batch.sampled_rows,
    )


class _Tiles:
    """The tokens of each sequence, cut into pieces of equal length."""

    def __init__(self, batch: StepBatch) -> None:
        begins = batch.sequence_begins[:-1]
        lengths = np.diff(batch.sequence_begins)
        size = 1 if lengths.max() == 1 else TILE_TOKENS
        counts = -(-lengths // size)
        self.sequences = np.repeat(np.arange(len(lengths)), counts)
        first = begins[self.sequences] + _places(counts) * size
        self.last_tokens = np.minimum(first + size, batch.sequence_begins[self.sequences + 1]) - 1
        tokens = np.minimum(first[:, np.newaxis] + np.arange(size), self.last_tokens[:, np.newaxis])
        self.tokens: Int32s = tokens.astype(np.int32)
        num_before = np.cumsum(counts) - counts
        places = np.repeat(num_before * size, lengths) + _places(lengths)
        self.token_places: Int32s = places.astype(np.int32)


def _places(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """0, 1, ... for each count, one after the other."""
    begins = np.cumsum(counts) - counts
    places: npt.NDArray[np.int64] = np.arange(counts.sum()) - np.repeat(begins, counts)
    return places


def _blocks_of_tokens(batch: StepBatch, *, positions: Int32s) -> Int32s:
    first = np.repeat(batch.block_begins[:-1], np.diff(batch.sequence_begins))
    blocks: Int32s = batch.block_ids[first + positions // BLOCK_SIZE]
    return blocks


def _blocks_of_spans(
    batch: StepBatch,
    *,
    sequences: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    unused_block: int,
) -> Int32s:
    """[spans, `SPAN_BLOCKS`]; `unused_block` stands for blocks that have no tokens yet.

    Those may hold anything, and what is not a number would spoil the sum that it has no part in.
    """
    lengths = batch.past_lens + np.diff(batch.sequence_begins)
    begins = batch.block_begins[sequences]
    ends = begins + -(-lengths[sequences] // BLOCK_SIZE)
    indices = (begins + first)[:, np.newaxis] + np.arange(SPAN_BLOCKS)
    is_there = indices < ends[:, np.newaxis]
    found = batch.block_ids[np.minimum(indices, len(batch.block_ids) - 1)]
    return np.where(is_there, found, unused_block).astype(np.int32)
