"""The memory of a paged KV cache: one array for the keys and one for the values of each layer."""

import mmap
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import openvino as ov

from aspira.llm.runner import BlockPayload


class KvCache:
    """Arrays of blocks that OpenVINO writes in place.

    Pages come from the kernel, zero and untouched: an idle cache takes no memory, and no block
    ever holds what another part of the process left behind.
    """

    def __init__(
        self, block_shapes: Sequence[tuple[int, ...]], *, dtype: ov.Type, num_blocks: int
    ) -> None:
        self.num_blocks = num_blocks
        sizes = [int(np.prod(shape)) * dtype.size for shape in block_shapes]
        self._memory = [mmap.mmap(-1, size * num_blocks) for size in sizes]
        self._blocks = [
            np.frombuffer(memory, np.uint8).reshape(num_blocks, size)
            for memory, size in zip(self._memory, sizes, strict=True)
        ]
        self._bounds = np.cumsum([0, *sizes])
        self.tensors = [
            ov.Tensor(blocks, ov.Shape([num_blocks, *shape]), dtype)
            for blocks, shape in zip(self._blocks, block_shapes, strict=True)
        ]

    @property
    def block_bytes(self) -> int:
        """Of one block over all layers."""
        return int(self._bounds[-1])

    def export_blocks(self, block_ids: Sequence[int]) -> BlockPayload:
        payload = np.empty((len(block_ids), self.block_bytes), np.uint8)
        ids = _indices(block_ids)
        for blocks, part in zip(self._blocks, self._parts(payload), strict=True):
            part[...] = blocks[ids]
        return payload

    def import_blocks(self, block_ids: Sequence[int], *, payload: BlockPayload) -> None:
        ids = _indices(block_ids)
        for blocks, part in zip(self._blocks, self._parts(payload), strict=True):
            blocks[ids] = part

    def _parts(self, payload: BlockPayload) -> list[npt.NDArray[np.uint8]]:
        return [
            payload[:, begin:end]
            for begin, end in zip(self._bounds[:-1], self._bounds[1:], strict=True)
        ]


def _indices(block_ids: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.asarray(block_ids, np.int64)
