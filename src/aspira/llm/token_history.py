"""What a choice has said, for the penalties on saying it again."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from aspira.contracts.generation import SamplingParameters

LogitRow = npt.NDArray[np.float32]


class TokenHistory:
    """The tokens of one choice: those of its prompt, and how often each is in the output."""

    def __init__(self, prompt: npt.ArrayLike) -> None:
        """An array is shared, not copied: choices of one prompt need one."""
        self._prompt = np.asarray(prompt, np.int64)
        self._counts: Counter[int] = Counter()

    def add(self, token_id: int) -> None:
        self._counts[token_id] += 1

    def penalize(self, row: LogitRow, *, parameters: SamplingParameters) -> None:
        """Change a row of logits in place; formulas as in OpenAI's reference and in CTRL."""
        ids = np.fromiter(self._counts, np.int64, len(self._counts))
        if parameters.repetition_penalty != 1.0:
            # One that is there twice gets the same value twice: all are computed before any is set.
            seen = np.concatenate([self._prompt, ids])
            logits, penalty = row[seen], np.float32(parameters.repetition_penalty)
            row[seen] = np.where(logits > 0, logits / penalty, logits * penalty)
        if self._counts and (parameters.frequency_penalty or parameters.presence_penalty):
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            row[ids] -= parameters.frequency_penalty * counts + parameters.presence_penalty


def needs_history(parameters: SamplingParameters) -> bool:
    """Whether any penalty is on."""
    return (
        parameters.repetition_penalty != 1.0
        or parameters.frequency_penalty != 0.0
        or parameters.presence_penalty != 0.0
    )
