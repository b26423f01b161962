"""What one step of a SavedModel's decoder is fed, by the names of its signature.

T tokens, N tiles of Q of them, P spans of the cache, R rows to sample. A tile has tokens of one
sequence; padding repeats one of them. A span is up to `SPAN_BLOCKS` blocks that the tokens of one
tile look at, so the work of attention follows the sum of the contexts and not the longest.
"""

from typing import Any, NamedTuple

BLOCK_SIZE = 32
SPAN_BLOCKS = 4
SPAN_TOKENS = SPAN_BLOCKS * BLOCK_SIZE


class StepInputs(NamedTuple):
    """Arrays or tensors, all int32."""

    token_ids: Any
    """[T]"""

    positions: Any
    """[T], in the sequence."""

    slots: Any
    """[T], where keys and values go: block * `BLOCK_SIZE` + place in the block."""

    fresh_blocks: Any
    """[F], blocks of which the first place is written: what else they hold is cleared."""

    tile_tokens: Any
    """[N, Q], which tokens a tile has."""

    token_tiles: Any
    """[T], where a token is among the N * Q of the tiles."""

    span_tiles: Any
    """[P], the tile that looks at the span."""

    span_blocks: Any
    """[P, `SPAN_BLOCKS`]"""

    span_begins: Any
    """[P], position of a span's first token in its sequence."""

    sampled_rows: Any
    """[R], tokens whose logits are wanted."""


STEP_RANKS = StepInputs(1, 1, 1, 1, 2, 1, 1, 2, 1, 1)
