"""Takes GGUF's symmetric blocks apart without dequantizing: Q4_0 and Q8_0.

Each holds a scale and 32 weights of a row; the layouts are those of ggml's `ggml-common.h`. Q4_1
has an offset besides, which OpenVINO's fast products know only as a whole number of steps; rounding
it so costs a quarter more perplexity (`docs/decisions/0034-decoders-on-openvino.md`).
"""

from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from aspira.llm.weights.packed import PackedMatrix

BLOCK_SIZE = 32

_Q4_0, _Q8_0 = 2, 8
_BLOCK_BYTES = MappingProxyType({_Q4_0: 18, _Q8_0: 34})
_SCALE_BYTES = 2
_INT4_MASK, _INT4_ZERO = 15, 8

Bytes = npt.NDArray[np.uint8]


def block_bytes(ggml_type: int) -> int | None:
    """The size of a block; None for a type that is only dequantized."""
    return _BLOCK_BYTES.get(ggml_type)


def unpack(blocks: Bytes, *, ggml_type: int) -> PackedMatrix:
    """`blocks` is [outputs, groups, bytes of a block]."""
    scales = np.ascontiguousarray(blocks[..., :_SCALE_BYTES]).view(np.float16)
    stored = blocks[..., _SCALE_BYTES:]
    if ggml_type == _Q8_0:
        return PackedMatrix(stored.view(np.int8), scales, num_bits=8)
    nibbles = np.concatenate([stored & _INT4_MASK, stored >> 4], axis=-1)
    return PackedMatrix(nibbles.astype(np.int8) - np.int8(_INT4_ZERO), scales, num_bits=4)
