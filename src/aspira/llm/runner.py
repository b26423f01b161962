"""What the engine asks of a decoder: run one step over a flat token axis and a paged KV cache."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from aspira.contracts.errors import Unavailable

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]
BlockPayload = npt.NDArray[np.uint8]


class StepBatch(NamedTuple):
    """The tokens of one step, those of each sequence together: T tokens of S sequences.

    Sequence `s` owns `tokens[sequence_begins[s]:sequence_begins[s + 1]]`, and the cache blocks
    `block_ids[block_begins[s]:block_begins[s + 1]]`, which hold its tokens in order and have room
    for those of this step.
    """

    tokens: Int64s
    """[T]"""

    positions: Int64s
    """[T], of each token in its sequence, from 0."""

    past_lens: Int32s
    """[S], tokens that are in the cache already."""

    sequence_begins: Int32s
    """[S + 1]"""

    block_ids: Int32s
    """[sum of the sequences' blocks]"""

    block_begins: Int32s
    """[S + 1]"""

    sampled_rows: Int32s
    """[R], indices on the token axis for which logits are wanted, in order."""


class RunnerLost(Unavailable):
    """The runner can make no step any more; only another one can."""


class Runner(Protocol):
    """One decoder and its cache. Used by one thread at a time; errors are `ServingError`.

    `RunnerLost` has the engine make another runner. Any other error fails the sequences of the
    step; should steps go on failing, that means the same.
    """

    @property
    def block_size(self) -> int:
        """Tokens in a cache block."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks of the cache, all usable, numbered from 0."""
        ...

    @property
    def vocab_size(self) -> int:
        """The length of a row of logits."""
        ...

    @property
    def max_context(self) -> int:
        """The most tokens that a sequence may have."""
        ...

    @property
    def kv_fingerprint(self) -> str:
        """Names the model, the cache's type and layout: equal where payloads can be exchanged."""
        ...

    @property
    def num_late_compilations(self) -> int:
        """How often a step had to be compiled since the runner was made, which none should."""
        ...

    def run(self, batch: StepBatch) -> Logits:
        """Compute one step, writing the cache in place; returns logits [R, vocab_size].

        They are the caller's to read until the next step, which may write to the same memory.
        """
        ...

    def export_blocks(self, block_ids: Sequence[int]) -> BlockPayload:
        """A copy of these blocks over all layers, [len(block_ids), bytes of one block]."""
        ...

    def import_blocks(self, block_ids: Sequence[int], *, payload: BlockPayload) -> None:
        """Write blocks that `export_blocks` of an equal `kv_fingerprint` returned."""
        ...

    def close(self) -> None:
        """Free the decoder and its cache."""
        ...


MakeRunner = Callable[[], Runner]
"""Makes a runner with an empty cache, perhaps the second after one that was lost."""
