from pathlib import Path

import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.quality import WINDOW_TOKENS, Quality, Reading, compare, read_text
from aspira.llm.runner import Logits, StepBatch
from aspira.testing.toy_decoder import ToyDecoder
from decoder_cases import TOKENS, expected_logits, write_case


def test_a_reading_is_that_of_the_formulas(tmp_path: Path) -> None:
    files, _ = write_case(tmp_path, "llama")
    runner = load_runner(files, options=DecoderOptions(precision="f32", cache_mib=4))
    reading = read_text(runner, tokens=TOKENS.tolist())
    logits = expected_logits(files)[:-1]
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    surprises = -np.log(shares[np.arange(len(logits)), TOKENS[1:]])
    np.testing.assert_allclose(reading.surprises, surprises, atol=1e-3)
    assert reading.perplexity == pytest.approx(np.exp(surprises.mean()), rel=1e-3)
    assert reading.best.tolist() == logits.argmax(axis=1).tolist()


class Successor(ToyDecoder):
    """Expects each token to be followed by the next higher one, and says so in all rows."""

    def run(self, batch: StepBatch) -> Logits:
        assert batch.positions.tolist() == list(
            range(batch.past_lens[0], batch.past_lens[0] + len(batch.tokens))
        )
        return np.eye(self.vocab_size, dtype=np.float32)[batch.tokens + 1] * 9


def test_a_long_text_is_read_in_windows() -> None:
    """Each window begins anew, so its first token is not predicted."""
    reading = read_text(Successor(max_context=40), tokens=range(100))
    assert reading.best.tolist() == [*range(1, 40), *range(41, 80), *range(81, 100)]
    assert reading.perplexity < 1.1
    long = read_text(Successor(max_context=4096, num_blocks=512), tokens=[3] * 600)
    assert len(long.best) == WINDOW_TOKENS - 1 + 600 - WINDOW_TOKENS - 1
    assert long.perplexity > 100


def test_a_last_token_that_is_alone_is_left_out() -> None:
    assert len(read_text(Successor(max_context=8), tokens=[1] * 9).best) == 7


@pytest.mark.parametrize("tokens", [[], [1]])
def test_nothing_to_predict(tokens: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="take a longer one"):
        read_text(ToyDecoder(), tokens=tokens)


def test_what_became_of_a_decoder() -> None:
    before = Reading(np.log([2.0, 8.0]), np.array([3, 4]))
    after = Reading(np.log([4.0, 9.0]), np.array([3, 5]))
    assert compare(before, after=after) == Quality(
        2, pytest.approx(4.0), pytest.approx(6.0), agreement=0.5
    )
