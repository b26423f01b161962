"""Each family in TensorFlow, over a paged cache and over whole rows, against NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from aspira.llm.saved_decoders.decoder import Decoder
from aspira.llm.saved_decoders.step_inputs import BLOCK_SIZE, StepInputs
from aspira.llm.saved_decoders.step_layout import lay_out
from aspira.llm.weights.model_weights import open_weights
from decoder_cases import CASES, TOKENS, expected_logits, write_case
from language_models import Chunk, step_batch

NUM_BLOCKS = 8


def make_decoder(directory: Path, name: str) -> tuple[Decoder, Any]:
    files, _ = write_case(directory, name)
    config, weights = open_weights(files)
    decoder = Decoder(config, weights=weights, dtype=tf.float32)
    for cache in [cache for pair in decoder.variables.caches for cache in pair]:
        shape = [NUM_BLOCKS * config.num_kv_heads, BLOCK_SIZE, config.head_size]
        cache.assign(tf.zeros(shape))
    return decoder, expected_logits(files)


def step(decoder: Decoder, *chunks: Chunk, rows: Any = None) -> Any:
    batch = step_batch(chunks, block_size=BLOCK_SIZE, rows=rows)
    inputs = lay_out(batch, unused_block=NUM_BLOCKS - 1)
    return decoder.step(StepInputs(*map(tf.constant, inputs))).numpy()


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_formulas(tmp_path: Path, name: str) -> None:
    decoder, expected = make_decoder(tmp_path, name)
    logits = step(decoder, Chunk(TOKENS, past=0, blocks=[4, 0, 2]), rows=range(len(TOKENS)))
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    [last] = step(decoder, Chunk(TOKENS[-1:], past=len(TOKENS) - 1, blocks=[4, 0, 2]))
    np.testing.assert_allclose(last, expected[-1], atol=2e-4)


def test_rows_of_any_length_are_continued(tmp_path: Path) -> None:
    decoder, expected = make_decoder(tmp_path, "llama")
    rows = np.full((3, 70), -1)
    for row, length in zip(rows, (70, 1, 33), strict=True):
        row[:length] = TOKENS[:length]
    predicted = decoder.next_tokens(tf.constant(rows)).numpy()
    assert predicted.tolist() == [expected[length - 1].argmax() for length in (70, 1, 33)]
