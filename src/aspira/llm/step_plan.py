"""The decision about one step: which sequences take part, with how many tokens each."""

from collections.abc import Sequence as Seq
from typing import NamedTuple

from aspira.llm.sequence import Sequence


class PlannedRow(NamedTuple):
    """A sequence's next `num_tokens` tokens, for which its blocks have room."""

    sequence: Sequence
    num_tokens: int

    @property
    def is_sampled(self) -> bool:
        """Whether this reaches the last known token, so that a new one can be drawn."""
        return self.num_tokens == self.sequence.num_missing


class StepPlan(NamedTuple):
    """What the runner computes next. Empty when there is nothing to do."""

    rows: tuple[PlannedRow, ...]

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


def share_prefill(missing: Seq[int], *, budget: int) -> list[int]:
    """Divide a step's tokens among sequences that are behind, which are given oldest first.

    Half is the oldest's, so that a long prompt always gets on. The rest goes to whoever needs the
    fewest, so that a short prompt, or one that is nearly all cached, never waits behind a long one.
    Among equals the older goes first and whole: halving everybody's pace would help nobody.
    """
    if not missing:
        return []
    shares = [0] * len(missing)
    shares[0] = min(missing[0], (budget + 1) // 2)
    left = budget - shares[0]
    for index in sorted(range(len(missing)), key=lambda i: (missing[i] - shares[i], i)):
        granted = min(missing[index] - shares[index], left)
        shares[index] += granted
        left -= granted
    return shares
