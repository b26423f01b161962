"""A decoder whose next token can be worked out by hand, from what its paged cache really holds.

The next token is the sum of (position + 1) * token over all tokens of the sequence, modulo the
vocabulary. What it sums are the tokens and positions stored in the cache's blocks, so a wrong
table, a block used after it was freed, or one that was written to twice changes what comes out.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from aspira.contracts.errors import InvalidArgument
from aspira.llm.runner import BlockPayload, Logits, StepBatch

Slots = npt.NDArray[np.int64]


def next_token(tokens: Sequence[int], *, vocab_size: int) -> int:
    """What the decoder finds most likely after `tokens`."""
    return sum((position + 1) * token for position, token in enumerate(tokens)) % vocab_size


def continuation(prompt: Sequence[int], *, num_tokens: int, vocab_size: int) -> list[int]:
    """What the decoder says after `prompt` if the most likely token is always taken."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens, vocab_size=vocab_size))
    return tokens[len(prompt) :]


class ToyDecoder:
    """A runner. `before_step` sees each batch first: to count, to fail, to let time pass."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        vocab_size: int = 257,
        max_context: int = 256,
        before_step: Callable[[StepBatch], None] = lambda _: None,
        corrupting_token: int | None = None,
    ) -> None:
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._before_step = before_step
        self._corrupting_token = corrupting_token
        self._cache: Slots = np.full((num_blocks, block_size, 2), -1, np.int64)
        self.is_closed = False

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def num_blocks(self) -> int:
        return len(self._cache)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_context(self) -> int:
        return self._max_context

    @property
    def num_late_compilations(self) -> int:
        return 0

    @property
    def kv_fingerprint(self) -> str:
        return f"toy/{self._block_size}/{self._vocab_size}"

    def run(self, batch: StepBatch) -> Logits:
        self._before_step(batch)
        rows = [self._run_sequence(batch, index=i) for i in range(len(batch.past_lens))]
        wanted = set(batch.sampled_rows.tolist())
        sampled = [row for last, row in rows if last in wanted]
        return np.array(sampled, np.float32).reshape(len(wanted), self._vocab_size)

    def export_blocks(self, block_ids: Sequence[int]) -> BlockPayload:
        payload = self._cache[list(block_ids)].reshape(len(block_ids), 2 * self._block_size)
        return payload.view(np.uint8)

    def import_blocks(self, block_ids: Sequence[int], *, payload: BlockPayload) -> None:
        values = np.ascontiguousarray(payload).view(np.int64)
        self._cache[list(block_ids)] = values.reshape(len(block_ids), self._block_size, 2)

    def close(self) -> None:
        self.is_closed = True

    def _run_sequence(self, batch: StepBatch, *, index: int) -> tuple[int, Logits]:
        """Store a sequence's new tokens; returns its last row's number and that row."""
        begin, end = batch.sequence_begins[index : index + 2]
        blocks = batch.block_ids[slice(*batch.block_begins[index : index + 2])]
        past = int(batch.past_lens[index])
        total = past + int(end - begin)
        if total > len(blocks) * self._block_size:
            raise InvalidArgument(f"{total} tokens do not fit in {len(blocks)} blocks")
        slots = np.arange(past, total)
        places = blocks[slots // self._block_size], slots % self._block_size
        self._cache[(*places, 0)] = batch.tokens[begin:end]
        self._cache[(*places, 1)] = batch.positions[begin:end]
        return int(end) - 1, self._logits_after(self._cache[blocks].reshape(-1, 2)[:total])

    def _logits_after(self, stored: Slots) -> Logits:
        """The further from the next token, counted upwards, the less likely."""
        tokens, positions = stored[:, 0], stored[:, 1]
        if self._corrupting_token is not None and self._corrupting_token in tokens:
            return np.full(self._vocab_size, np.nan, np.float32)
        chosen = int(((positions + 1) * tokens).sum() % self._vocab_size)
        distance = (np.arange(self._vocab_size) - chosen) % self._vocab_size
        return (-0.5 * distance).astype(np.float32)
