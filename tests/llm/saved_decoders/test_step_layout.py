"""How a step's tokens are cut into tiles and its contexts into spans."""

import numpy as np

from aspira.llm.saved_decoders.step_inputs import SPAN_TOKENS, StepInputs
from aspira.llm.saved_decoders.step_layout import TILE_TOKENS, lay_out
from language_models import Chunk, step_batch

UNUSED = 99


def lay(*chunks: Chunk) -> StepInputs:
    return lay_out(step_batch(chunks, block_size=32), unused_block=UNUSED)


def test_single_tokens_are_tiles_of_one() -> None:
    inputs = lay(Chunk([7], past=3, blocks=[5]), Chunk([8], past=130, blocks=[1, 2, 3, 4, 6]))
    assert inputs.tile_tokens.tolist() == [[0], [1]]
    assert inputs.slots.tolist() == [5 * 32 + 3, 6 * 32 + 2]
    assert inputs.span_tiles.tolist() == [0, 1, 1]
    assert inputs.span_begins.tolist() == [0, 0, SPAN_TOKENS]
    assert inputs.span_blocks.tolist() == [
        [5, UNUSED, UNUSED, UNUSED],
        [1, 2, 3, 4],
        [6, UNUSED, UNUSED, UNUSED],
    ]


def test_several_tokens_of_a_sequence_share_tiles_and_nobody_elses() -> None:
    inputs = lay(Chunk(range(20), past=0, blocks=[0]), Chunk([1, 2], past=31, blocks=[3, 4]))
    assert inputs.tile_tokens.shape == (3, TILE_TOKENS)
    flat = inputs.tile_tokens.reshape(-1)
    np.testing.assert_array_equal(flat[inputs.token_tiles], np.arange(22))
    assert set(inputs.tile_tokens[1]) == {16, 17, 18, 19}
    assert set(inputs.tile_tokens[2]) == {20, 21}


def test_blocks_are_fresh_where_their_first_place_is_written() -> None:
    inputs = lay(Chunk([1], past=5, blocks=[2]), Chunk([1, 2, 3], past=31, blocks=[3, 4]))
    assert inputs.fresh_blocks.tolist() == [4]


def test_a_tile_looks_no_further_than_its_last_token() -> None:
    inputs = lay(Chunk(range(160), past=0, blocks=range(5)))
    spans = np.bincount(inputs.span_tiles)
    assert spans.tolist() == [1] * 8 + [2] * 2


def test_blocks_that_a_sequence_has_not_reached_are_not_read() -> None:
    """They may hold what others left."""
    batch = step_batch([Chunk([1], past=31, blocks=[0])], block_size=32)
    batch = batch._replace(
        block_ids=np.array([0, 7], np.int32), block_begins=np.array([0, 2], np.int32)
    )
    inputs = lay_out(batch, unused_block=UNUSED)
    assert inputs.span_blocks.tolist() == [[0, UNUSED, UNUSED, UNUSED]]
