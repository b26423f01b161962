"""From rows of logits to one token each, as each row's own parameters say."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aspira.contracts.generation import MIN_LOGPROB, SamplingParameters, TokenLogprob
from aspira.llm.runner import Logits
from aspira.llm.token_draw import GREEDY_BELOW, draw_token, largest_ids, uniform_at
from aspira.llm.token_history import LogitRow, TokenHistory

PackedMask = npt.NDArray[np.uint8]
"""One bit a token, the lowest bit of a byte first; 1 is allowed."""


class SamplingRow(NamedTuple):
    """How one row is to be sampled."""

    parameters: SamplingParameters
    seed: tuple[int, int]
    position: int
    """Tokens that the choice has drawn before."""

    history: TokenHistory | None = None
    """Given where a penalty is on."""

    banned: Sequence[int] = ()
    """Tokens that may not be drawn, such as end tokens before the minimum length."""

    allowed: PackedMask | None = None
    """Given where a grammar restricts the next token."""


class DrawnToken(NamedTuple):
    """A row's token, and its log probabilities where they were asked for."""

    token_id: int
    logprob: TokenLogprob | None = None


class RowFault(Enum):
    """Why no token can be drawn from a row."""

    NOT_NUMBERS = "The model's logits for this request are not numbers"
    NOTHING_ALLOWED = "The grammar and the biases of this request allow no token here"


Drawn = DrawnToken | RowFault


class Sampler:
    """Greedy rows without wishes are done together; the others one by one, in a core's cache."""

    def __init__(self) -> None:
        bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
        self._bias_of_byte = np.where(bits, np.float32(0), np.float32(-np.inf))

    def sample(self, logits: Logits, *, rows: Sequence[SamplingRow]) -> list[Drawn]:
        """A token for each row, or why there is none. `logits` are left as they are."""
        # A row's largest is NaN if any is, and not finite if nothing can be drawn from it.
        largest_at = logits.argmax(axis=1)
        is_sound = np.isfinite(logits[np.arange(len(rows)), largest_at]).tolist()
        return [
            self._sample_row(logits[index], row=row, largest_at=largest)
            if sound
            else RowFault.NOT_NUMBERS
            for index, (row, largest, sound) in enumerate(
                zip(rows, largest_at.tolist(), is_sound, strict=True)
            )
        ]

    def _sample_row(self, logits: LogitRow, *, row: SamplingRow, largest_at: int) -> Drawn:
        original = logits
        if _is_adjusted(row):
            logits = logits.copy()
            self._adjust(logits, row=row)
            largest_at = int(logits.argmax())
            if not np.isfinite(logits[largest_at]):
                return RowFault.NOTHING_ALLOWED
        token_id = largest_at
        if row.parameters.temperature >= GREEDY_BELOW:
            uniform = uniform_at(row.seed, position=row.position)
            token_id = draw_token(logits, parameters=row.parameters, uniform=uniform)
        count = row.parameters.num_logprobs
        if count is None:
            return DrawnToken(token_id)
        return DrawnToken(token_id, token_logprob(original, token_id=token_id, count=count))

    def _adjust(self, logits: LogitRow, *, row: SamplingRow) -> None:
        if row.history is not None:
            row.history.penalize(logits, parameters=row.parameters)
        for token_id, bias in row.parameters.logit_bias:
            logits[token_id] += bias
        if row.allowed is not None:
            logits += self._bias_of_byte[row.allowed].reshape(-1)[: len(logits)]
        if row.banned:
            logits[list(row.banned)] = -np.inf


def token_logprob(logits: LogitRow, *, token_id: int, count: int) -> TokenLogprob:
    """The log probability of a token under plain softmax, and the `count` largest."""
    largest = logits.max()
    log_total = float(largest) + float(np.log(np.exp(logits - largest).sum(dtype=np.float64)))
    ids = largest_ids(logits, count=count) if count else np.empty(0, np.int64)
    return TokenLogprob(
        token_id,
        _finite(float(logits[token_id]) - log_total),
        tuple((int(i), _finite(float(logits[i]) - log_total)) for i in ids),
    )


def _finite(logprob: float) -> float:
    return max(logprob, MIN_LOGPROB)


def _is_adjusted(row: SamplingRow) -> bool:
    return bool(
        row.history is not None
        or row.parameters.logit_bias
        or row.allowed is not None
        or row.banned
    )
