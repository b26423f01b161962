"""What every runner must do, as checks for the tests of each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from aspira.llm.batch import assemble_batch
from aspira.llm.runner import Logits, Runner
from aspira.llm.sequence import Rank
from aspira.llm.sequence import Sequence as TokenSequence
from aspira.llm.step_plan import PlannedRow, StepPlan


@dataclass
class RunnerContract:
    """Steps a runner by hand. `tolerance` is for sums in another order."""

    runner: Runner
    tolerance: float = 0.0
    _free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        # Neither in order nor side by side, so that nothing depends on it.
        self._free = [*range(1, self.runner.num_blocks, 2), *range(0, self.runner.num_blocks, 2)]

    def check_all(self, prompt: Sequence[int]) -> None:
        """`prompt` is longer than two blocks."""
        assert len(prompt) > 2 * self.runner.block_size
        self.check_parts(prompt)
        self.check_batch_mates(prompt)
        self.check_only_sampled_rows(prompt)
        self.check_block_copies(prompt)
        self.check_blocks_are_used_again(prompt)

    def check_parts(self, prompt: Sequence[int]) -> None:
        """A prompt in parts gives what it gives as a whole."""
        whole = self.run([(self.start(prompt), len(prompt))])
        parted = self.start(prompt)
        first = self.runner.block_size + 1
        assert self.run([(parted, first)]).shape == (0, self.runner.vocab_size)
        self.run([(parted, 1)])
        self.check_equal(self.run([(parted, len(prompt) - first - 1)]), whole)

    def check_batch_mates(self, prompt: Sequence[int]) -> None:
        """Who else is in the step makes no difference."""
        alone = self.run([(self.start(prompt), len(prompt))])
        mates = [self.start(prompt[::-1]), self.start(prompt), self.start(prompt[:3])]
        together = self.run([(mate, mate.num_tokens) for mate in mates])
        self.check_equal(together[1:2], alone)

    def check_only_sampled_rows(self, prompt: Sequence[int]) -> None:
        """Logits come for the last known tokens, in order, and belong to the caller."""
        short, unfinished, long = self.start(prompt[:2]), self.start(prompt), self.start(prompt)
        expected = [self.run([(self.start(s.prompt), s.num_tokens)]) for s in (short, long)]
        logits = self.run([(short, 2), (unfinished, 5), (long, len(prompt))])
        self.check_equal(logits, np.concatenate(expected))
        assert logits.dtype == np.float32
        kept = logits.copy()
        self.run([(unfinished, 3)])
        assert np.array_equal(logits, kept), "logits changed in a later step"

    def check_block_copies(self, prompt: Sequence[int]) -> None:
        """Blocks that were exported and imported under other numbers hold the same."""
        block_size = self.runner.block_size
        original = self.start(prompt)
        expected = self.run([(original, len(prompt))])
        payload = self.runner.export_blocks(original.block_ids[:2])
        assert payload.dtype == np.uint8
        assert payload.shape[0] == 2
        copied = self.start(prompt)
        self.runner.import_blocks(copied.block_ids[:2], payload=payload)
        assert np.array_equal(self.runner.export_blocks(copied.block_ids[:2]), payload)
        copied.num_computed = 2 * block_size
        self.check_equal(self.run([(copied, len(prompt) - 2 * block_size)]), expected)
        assert len(self.runner.export_blocks([])) == 0

    def check_blocks_are_used_again(self, prompt: Sequence[int]) -> None:
        """What a block held before makes no difference."""
        expected = self.run([(self.start(prompt), len(prompt))])
        used = self.start(prompt[::-1])
        self.run([(used, len(prompt))])
        self._free = [*used.block_ids, *self._free]
        self.check_equal(self.run([(self.start(prompt), len(prompt))]), expected)

    def start(self, tokens: Sequence[int]) -> TokenSequence:
        """A sequence with blocks for all its tokens and one more."""
        count = len(tokens) // self.runner.block_size + 1
        assert len(self._free) >= count, "the runner of the test has too few blocks"
        sequence = TokenSequence(Rank(0, 0, 0), tuple(tokens), len(tokens) + 1)
        sequence.block_ids, self._free = self._free[:count], self._free[count:]
        return sequence

    def run(self, rows: Sequence[tuple[TokenSequence, int]]) -> Logits:
        """One step in which each sequence has so many of its tokens computed."""
        logits = self.runner.run(assemble_batch(StepPlan(tuple(PlannedRow(*r) for r in rows))))
        for sequence, num_tokens in rows:
            sequence.num_computed += num_tokens
        return logits

    def check_equal(self, actual: Logits, expected: npt.NDArray[np.float32]) -> None:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=self.tolerance)
