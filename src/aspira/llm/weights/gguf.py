"""The weights of a GGUF file, dequantized as they are read, or as they are stored."""

import math
from types import MappingProxyType

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aspira.contracts.errors import DataLoss, Unimplemented
from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.families import family_named
from aspira.llm.weights.bounded_files import digest_files
from aspira.llm.weights.gguf_blocks import BLOCK_SIZE, block_bytes, unpack
from aspira.llm.weights.gguf_file import GgufFile, StoredTensor
from aspira.llm.weights.packed import PackedMatrix
from aspira.llm.weights.source import Weight, name_in_file

_F32, _F16, _BF16 = 0, 1, 30
_PLAIN = MappingProxyType({_F32: np.float32, _F16: np.float16, _BF16: ml_dtypes.bfloat16})
_NAMES = MappingProxyType(
    {
        "embedding": "token_embd",
        "final_norm": "output_norm",
        "head": "output",
        "attention_norm": "attn_norm",
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "query_norm": "attn_q_norm",
        "key_norm": "attn_k_norm",
        "attention_output": "attn_output",
        "mlp_norm": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "rotary_factors": "rope_freqs",
    }
)


class GgufWeights:
    """See `Weights`."""

    def __init__(self, file: GgufFile, *, config: DecoderConfig) -> None:
        self._file = file
        self._is_interleaved = family_named(config.family).has_interleaved_gguf
        self._num_heads = MappingProxyType(
            {
                "query": config.num_heads,
                "key": config.num_kv_heads,
            }
        )
        self.digest = digest_files([file.path])

    def __contains__(self, name: str) -> bool:
        return _stored_name(name) in self._file.tensors

    def read(self, name: str) -> Weight:
        stored = _stored_name(name)
        if stored not in self._file.tensors:
            raise DataLoss(f"{self._file.path} has no tensor {stored}; download it again")
        return self._in_order(self._dequantized(stored), name=name)

    def read_packed(self, name: str) -> PackedMatrix | None:
        stored = _stored_name(name)
        tensor = self._file.tensors.get(stored)
        size = block_bytes(tensor.ggml_type) if tensor else None
        if tensor is None or size is None or tensor.shape[-1] % BLOCK_SIZE:
            return None
        rows, groups = tensor.shape[0], tensor.shape[-1] // BLOCK_SIZE
        blocks = self._file.raw(stored, num_bytes=rows * groups * size).reshape(rows, groups, size)
        return unpack(self._in_order(blocks, name=name), ggml_type=tensor.ggml_type)

    def _in_order(self, rows: Weight, *, name: str) -> Weight:
        part = name.split(".")[-2]
        if self._is_interleaved and part in self._num_heads:
            return half_rotated(rows, num_heads=self._num_heads[part])
        return rows

    def _dequantized(self, stored: str) -> Weight:
        tensor = self._file.tensors[stored]
        if tensor.ggml_type in _PLAIN:
            dtype = np.dtype(_PLAIN[tensor.ggml_type])
            num_bytes = math.prod(tensor.shape) * dtype.itemsize
            raw = self._file.raw(stored, num_bytes=num_bytes)
            weight: Weight = raw.view(dtype).reshape(tensor.shape)
            return weight
        return _dequantize(self._file, name=stored, tensor=tensor)


def half_rotated(weight: Weight, *, num_heads: int) -> Weight:
    """Rows from llama.cpp's order, where a pair to rotate is two neighbours, to Hugging Face's.

    There the pair is one row of a head's first half and one of its second.
    """
    head_size = weight.shape[0] // num_heads
    pairs = weight.reshape(num_heads, head_size // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _dequantize(file: GgufFile, *, name: str, tensor: StoredTensor) -> npt.NDArray[np.float32]:
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
    except ImportError as error:
        raise Unimplemented(
            "GGUF files need the package gguf: pip install 'aspira[llm]'"
        ) from error
    try:
        kind = GGMLQuantizationType(tensor.ggml_type)
        block_size, block_bytes = GGML_QUANT_SIZES[kind]
        num_columns = tensor.shape[-1]
        rows = math.prod(tensor.shape[:-1])
        row_bytes = num_columns // block_size * block_bytes
        data = file.raw(name, num_bytes=rows * row_bytes)
        weight: npt.NDArray[np.float32] = quants.dequantize(
            data.reshape(*tensor.shape[:-1], row_bytes), kind
        )
    except (ValueError, KeyError, NotImplementedError) as error:
        raise Unimplemented(
            f"{file.path}: tensor {name} has the type {tensor.ggml_type}, which cannot be "
            f"dequantized: {error}; quantize the model to Q4_1, Q4_K, Q8_0 or F16"
        ) from error
    return weight.reshape(tensor.shape)


def _stored_name(name: str) -> str:
    return name_in_file(name, names=_NAMES, layer_prefix="blk.")
