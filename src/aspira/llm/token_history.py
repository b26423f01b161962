"""What a choice has said, for the penalties on saying it again."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aspira.contracts.generation import SamplingParameters

LogitRow = npt.NDArray[np.float32]


class TokenHistory:
    """The tokens of one choice: those seen in prompt or output, and how often in the output."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._seen = set(prompt)
        self._counts: Counter[int] = Counter()

    def add(self, token_id: int) -> None:
        self._seen.add(token_id)
        self._counts[token_id] += 1

    def penalize(self, row: LogitRow, *, parameters: SamplingParameters) -> None:
        """Change a row of logits in place; formulas as in OpenAI's reference and in CTRL."""
        if parameters.repetition_penalty != 1.0:
            seen = np.fromiter(self._seen, np.int64, len(self._seen))
            logits, penalty = row[seen], np.float32(parameters.repetition_penalty)
            row[seen] = np.where(logits > 0, logits / penalty, logits * penalty)
        if self._counts and (parameters.frequency_penalty or parameters.presence_penalty):
            ids = np.fromiter(self._counts, np.int64, len(self._counts))
            counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
            row[ids] -= parameters.frequency_penalty * counts + parameters.presence_penalty


def needs_history(parameters: SamplingParameters) -> bool:
    """Whether any penalty is on."""
    return (
        parameters.repetition_penalty != 1.0
        or parameters.frequency_penalty != 0.0
        or parameters.presence_penalty != 0.0
    )
