"""What is written as a TensorProto reads back the same, and no message can do worse than refuse."""

import hypothesis.extra.numpy as numpy_strategies
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, Tensor, data_type_of
from aspira.wire.tensor_proto import decode_tensor, encode_tensor

CARRIED = tuple(data_type for data_type in DataType if data_type.numpy_dtype is not None)
SHAPES = numpy_strategies.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9)
# Only the low bits of the narrowest integers mean anything, and a bool has two values.
NUM_BITS = {
    DataType.BOOL: 1,
    DataType.INT2: 2,
    DataType.UINT2: 2,
    DataType.INT4: 4,
    DataType.UINT4: 4,
    DataType.FLOAT4_E2M1FN: 4,
}
NARROW_INTEGERS = (DataType.INT2, DataType.UINT2, DataType.INT4, DataType.UINT4)


def draw_tensor(data: st.DataObject, *, data_type: DataType) -> Tensor:
    shape = data.draw(SHAPES)
    size = int(np.prod(shape))
    dtype = data_type.numpy_dtype
    assert dtype is not None
    if data_type is DataType.STRING:
        strings = np.empty(size, dtype=object)
        strings[:] = data.draw(st.lists(st.binary(max_size=200), min_size=size, max_size=size))
        return strings.reshape(shape)
    seed = data.draw(st.integers(0, 2**32 - 1))
    raw = np.random.default_rng(seed).bytes(size * dtype.itemsize)
    if data_type in NUM_BITS:
        masked = np.frombuffer(raw, np.uint8) & (2 ** NUM_BITS[data_type] - 1)
        return masked.astype(dtype).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


@pytest.mark.parametrize("use_tensor_content", [False, True])
@pytest.mark.parametrize("data_type", CARRIED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_round_trip(data_type: DataType, use_tensor_content: bool, data: st.DataObject) -> None:
    tensor = draw_tensor(data, data_type=data_type)
    proto = tensor_pb2.TensorProto()
    encode_tensor(tensor, into=proto, use_tensor_content=use_tensor_content)
    received = tensor_pb2.TensorProto.FromString(proto.SerializeToString())
    found = decode_tensor(received, alias="x")
    assert data_type_of(found) is data_type
    assert found.shape == tensor.shape
    assert_same_values(found, tensor, data_type=data_type)


def assert_same_values(found: Tensor, tensor: Tensor, *, data_type: DataType) -> None:
    if data_type is DataType.STRING:
        assert found.tolist() == tensor.tolist()
    elif data_type in NARROW_INTEGERS:
        assert found.astype(np.int8).tobytes() == tensor.astype(np.int8).tobytes()
    elif data_type in {DataType.FLOAT, DataType.COMPLEX64}:
        # Which NaN it is may change on its way through a Python float.
        np.testing.assert_array_equal(found, tensor)
    else:
        assert found.tobytes() == tensor.tobytes()


def assert_read_or_refused(proto: tensor_pb2.TensorProto) -> None:
    try:
        tensor = decode_tensor(proto, alias="x")
    except InvalidArgument as error:
        assert error.message == "tensor parsing error: x"  # noqa: PT017 - most messages are read
    else:
        assert tensor.dtype == DataType(proto.dtype).numpy_dtype
        assert tensor.shape == tuple(dim.size for dim in proto.tensor_shape.dim)


@settings(deadline=None)
@given(encoded=st.binary(max_size=300))
@example(encoded=b"\x08\x01\x12\x0b\x12\x09\x08\xff\xff\xff\xff\xff\xff\xff\x7f")
def test_any_bytes_are_read_or_refused(encoded: bytes) -> None:
    try:
        proto = tensor_pb2.TensorProto.FromString(encoded)
    except DecodeError:
        return
    assert_read_or_refused(proto)


@st.composite
def messages(draw: st.DrawFn) -> tensor_pb2.TensorProto:
    """Whose parts are valid one by one, but seldom fit."""
    proto = tensor_pb2.TensorProto(dtype=draw(st.integers(-1, 110)))
    sizes = st.one_of(st.integers(-2, 6), st.integers(-(2**63), 2**63 - 1))
    for size in draw(st.lists(sizes, max_size=4)):
        proto.tensor_shape.dim.add(size=size)
    proto.tensor_shape.unknown_rank = draw(st.booleans())
    for field in draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=2)):
        values = draw(VALUES[field])
        if isinstance(values, bytes):
            setattr(proto, field, values)
        else:
            getattr(proto, field).extend(values)
    return proto


FLOATS = st.lists(st.floats(width=32), max_size=80)
INTEGERS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9)
VALUES = {
    "tensor_content": st.binary(max_size=40),
    "float8_val": st.binary(max_size=40),
    "float_val": FLOATS,
    "double_val": FLOATS,
    "scomplex_val": FLOATS,
    "dcomplex_val": FLOATS,
    "int_val": INTEGERS,
    "half_val": INTEGERS,
    "int64_val": INTEGERS,
    "uint32_val": st.lists(st.integers(0, 2**32 - 1), max_size=9),
    "uint64_val": st.lists(st.integers(0, 2**64 - 1), max_size=9),
    "bool_val": st.lists(st.booleans(), max_size=80),
    "string_val": st.lists(st.binary(max_size=9), max_size=9),
}


@settings(deadline=None)
@given(proto=messages())
def test_any_message_is_read_or_refused(proto: tensor_pb2.TensorProto) -> None:
    assert_read_or_refused(proto)
