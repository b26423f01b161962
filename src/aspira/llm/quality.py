"""Measures a decoder on a text: how surprised it is, and what it would have said at each token."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aspira.contracts.errors import InvalidArgument
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import ModelFiles
from aspira.llm.model_text import TextPrompt, load_text
from aspira.llm.runner import Logits, Runner, StepBatch

# Each window begins anew: longer ones cost more and tell little more.
WINDOW_TOKENS = 512
_CHUNK_TOKENS = 128
# A window of the largest decoders' keys and values.
_CACHE_MIB = 512


class Reading(NamedTuple):
    """What a decoder made of a text. The arrays have an entry for each token that was predicted."""

    surprises: npt.NDArray[np.float64]
    """Negative log probabilities of the text's own tokens."""

    best: npt.NDArray[np.int64]
    """The most likely tokens in their places."""

    @property
    def perplexity(self) -> float:
        """The number of tokens among which the decoder was, on average, undecided."""
        return float(np.exp(self.surprises.mean()))


class Quality(NamedTuple):
    """A decoder beside the one that it was made from, on the same text."""

    num_tokens: int
    perplexity_before: float
    perplexity_after: float

    agreement: float
    """Share of places in which both find the same token the most likely."""


def read_text(runner: Runner, *, tokens: Sequence[int]) -> Reading:
    """Have a decoder read a text, in windows. Its cache is free to use.

    Raises:
        ServingError: the text is too short, or a step failed.
    """
    size = min(WINDOW_TOKENS, runner.max_context, runner.num_blocks * runner.block_size)
    windows = [tokens[begin : begin + size] for begin in range(0, len(tokens), size)]
    parts = [part for window in windows if len(window) > 1 for part in _read(runner, window=window)]
    if not parts:
        raise InvalidArgument("A text of one token has nothing to predict; take a longer one")
    return Reading(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def read_model(files: ModelFiles, *, text: str) -> Reading:
    """Have the model of a version directory read a text, as it would be served here.

    Raises:
        ServingError: a file cannot be read, or the text is too short.
    """
    # It is read in windows, so it may be longer than the context.
    tokens = load_text(files, max_tokens=len(text) + 1).encode(TextPrompt(text))
    runner = load_runner(files, options=DecoderOptions(cache_mib=_CACHE_MIB))
    try:
        return read_text(runner, tokens=tokens)
    finally:
        runner.close()


def compare(before: Reading, *, after: Reading) -> Quality:
    """What became of a decoder, both having read the same tokens."""
    return Quality(
        len(before.best),
        before.perplexity,
        after.perplexity,
        float((before.best == after.best).mean()),
    )


def _read(runner: Runner, *, window: Sequence[int]) -> Iterator[Reading]:
    for begin in range(0, len(window) - 1, _CHUNK_TOKENS):
        chunk = window[begin : begin + _CHUNK_TOKENS]
        wanted = np.asarray(window[begin + 1 : begin + 1 + len(chunk)], np.int64)
        # What comes after the last token is not known.
        logits = runner.run(_batch(chunk, past=begin, runner=runner))[: len(wanted)]
        yield Reading(_surprises(logits, wanted=wanted), logits.argmax(axis=1))


def _surprises(logits: Logits, *, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    highest = logits.max(axis=1).astype(np.float64)
    sums = np.exp(logits - highest[:, None]).sum(axis=1, dtype=np.float64)
    found: npt.NDArray[np.float64] = highest + np.log(sums) - logits[np.arange(len(wanted)), wanted]
    return found


def _batch(tokens: Sequence[int], *, past: int, runner: Runner) -> StepBatch:
    """One sequence that goes on, in the first blocks of the cache; all of its rows are wanted."""
    end = past + len(tokens)
    num_blocks = -(-end // runner.block_size)
    return StepBatch(
        tokens=np.asarray(tokens, np.int64),
        positions=np.arange(past, end, dtype=np.int64),
        past_lens=np.array([past], np.int32),
        sequence_begins=np.array([0, len(tokens)], np.int32),
        block_ids=np.arange(num_blocks, dtype=np.int32),
        block_begins=np.array([0, num_blocks], np.int32),
        sampled_rows=np.arange(len(tokens), dtype=np.int32),
    )
