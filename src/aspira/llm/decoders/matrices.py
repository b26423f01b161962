"""The matrices of a decoder as OpenVINO constants, in each of the formats they may be kept in."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import ml_dtypes
import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset15 as ops

from aspira.llm.decoders.family import Node
from aspira.llm.decoders.options import WeightFormat
from aspira.llm.weights.packed import PackedMatrix, join_rows, pack_int8
from aspira.llm.weights.source import Weight, Weights

# That of GGUF's blocks: a smaller group is slower, a larger one rounds more.
_GROUP_SIZE = 32
_MAX_FLOAT16 = 65504


def make_matrix(names: Sequence[str], *, weights: Weights, weight_format: WeightFormat) -> Node:
    """The rows of these weights, one below the other, as float32 [outputs, inputs].

    Raises:
        ServingError: one is missing or cannot be read.
    """
    if weight_format == "stored":
        packed = join_rows([weights.read_packed(name) for name in names])
        if packed is not None:
            return _packed_matrix(packed)
    read = [weights.read(name) for name in names]
    return _MAKERS[weight_format](np.concatenate(read) if len(read) > 1 else read[0])


def _float_matrix(weight: Weight) -> Node:
    return ops.constant(weight.astype(np.float32))


def _half_matrix(weight: Weight) -> Node:
    # OpenVINO rounds to bfloat16 when it compiles. Its fused MLP for AMX takes float16 alone, as
    # published models have it, whose range weights keep within by far.
    if np.abs(weight).max() <= _MAX_FLOAT16:
        return ops.convert(ops.constant(weight.astype(np.float16)), "f32")
    # It has no NumPy type for bfloat16: the bits are copied into a tensor of its own.
    tensor = ov.Tensor(ov.Type.bf16, ov.Shape(weight.shape))
    tensor.data.view(np.uint16)[...] = weight.astype(ml_dtypes.bfloat16).view(np.uint16)
    return ops.convert(ops.constant(tensor, shared_memory=True), "f32")


def _int8_matrix(weight: Weight) -> Node:
    return _packed_matrix(pack_int8(weight.astype(np.float32), group_size=_GROUP_SIZE))


def _packed_matrix(packed: PackedMatrix) -> Node:
    # The form that OpenVINO multiplies with as it stands; others are unpacked to floats first.
    values = _int4_constant(packed.values) if packed.num_bits == 4 else ops.constant(packed.values)
    scaled = ops.multiply(ops.convert(values, "f16"), ops.constant(packed.scales))
    rows, groups, size = packed.values.shape
    flat = ops.reshape(scaled, ops.constant([rows, groups * size], np.int64), special_zero=False)
    return ops.convert(flat, "f32")


def _int4_constant(values: npt.NDArray[np.int8]) -> Node:
    tensor = ov.Tensor(ov.Type.i4, ov.Shape(values.shape))
    nibbles = (values & 15).astype(np.uint8).reshape(-1)
    tensor.data.view(np.uint8).reshape(-1)[:] = nibbles[0::2] | nibbles[1::2] << 4
    return ops.constant(tensor, shared_memory=True)


_MAKERS: Mapping[str, Callable[[Weight], Node]] = MappingProxyType(
    {
        "f32": _float_matrix,
        "bf16": _half_matrix,
        "int8": _int8_matrix,
        # What is not stored in packed integers.
        "stored": _half_matrix,
    }
)
