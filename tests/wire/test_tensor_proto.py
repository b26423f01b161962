"""Tensors on the wire, checked against what TensorFlow itself writes and reads."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, Tensor
from aspira.wire.tensor_proto import count_walked_values, decode_tensor, encode_tensor

QUANTIZED = (
    DataType.QINT8,
    DataType.QUINT8,
    DataType.QINT16,
    DataType.QUINT16,
    DataType.QINT32,
)
CARRIED = tuple(data_type for data_type in DataType if data_type.numpy_dtype is not None)
PLAIN = tuple(data_type for data_type in CARRIED if data_type not in QUANTIZED)
SHAPES = ((), (1,), (0,), (7,), (2, 3), (2, 0, 3), (64,), (5, 13), (1, 1, 300))


def make_tensor(data_type: DataType, *, shape: tuple[int, ...]) -> Tensor:
    """Different values, as far as the dtype has them: 0, 1, 0, 1, ... for the narrowest."""
    dtype = data_type.numpy_dtype
    assert dtype is not None
    count = np.arange(int(np.prod(shape))).reshape(shape)
    if data_type is DataType.STRING:
        texts = [f"s{number}".encode() * (number % 4) for number in count.ravel()]
        strings = np.empty(len(texts), dtype=object)
        strings[:] = texts
        return strings.reshape(shape)
    if dtype.names is not None:
        return (count % 100).astype(dtype[0]).view(dtype)
    if data_type in {DataType.COMPLEX64, DataType.COMPLEX128}:
        return (count + 1j * (count + 0.5)).astype(dtype)
    return (count % 2 if dtype.itemsize == 1 else count).astype(dtype)


def make_proto(data_type: int, *, shape: tuple[int, ...], **fields: Any) -> Any:
    proto = tensor_pb2.TensorProto(dtype=data_type, **fields)
    proto.tensor_shape.SetInParent()
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def encode(tensor: Tensor, *, use_tensor_content: bool = False) -> Any:
    """As a client would get it: through bytes."""
    proto = tensor_pb2.TensorProto()
    encode_tensor(tensor, into=proto, use_tensor_content=use_tensor_content)
    return tensor_pb2.TensorProto.FromString(proto.SerializeToString())


def read_by_tensorflow(proto: Any) -> Tensor:
    """What TensorFlow's own `Tensor::FromProto` makes of it."""
    parsed = tf.io.parse_tensor(proto.SerializeToString(), proto.dtype)
    # A scalar string comes as bytes.
    return np.asarray(parsed.numpy(), dtype=object if parsed.dtype == tf.string else None)


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("use_tensor_content", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", CARRIED)
def test_round_trip(data_type: DataType, shape: tuple[int, ...], use_tensor_content: bool) -> None:
    tensor = make_tensor(data_type, shape=shape)
    assert_same(
        decode_tensor(encode(tensor, use_tensor_content=use_tensor_content), alias="x"), tensor
    )


@pytest.mark.parametrize("use_tensor_content", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("data_type", PLAIN)
def test_tensorflow_reads_what_is_written(
    data_type: DataType, shape: tuple[int, ...], use_tensor_content: bool
) -> None:
    tensor = make_tensor(data_type, shape=shape)
    proto = encode(tensor, use_tensor_content=use_tensor_content)
    assert_same(read_by_tensorflow(proto), tensor)


@pytest.mark.parametrize("data_type", QUANTIZED)
def test_quantized_integers_are_their_storage(data_type: DataType) -> None:
    tensor = make_tensor(data_type, shape=(3,))
    assert read_by_tensorflow(encode(tensor)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "data_type",
    [
        DataType.FLOAT,
        DataType.DOUBLE,
        DataType.HALF,
        DataType.BFLOAT16,
        DataType.INT8,
        DataType.INT16,
        DataType.INT32,
        DataType.INT64,
        DataType.UINT8,
        DataType.UINT16,
        DataType.UINT32,
        DataType.UINT64,
        DataType.BOOL,
        DataType.COMPLEX64,
        DataType.COMPLEX128,
        DataType.STRING,
        DataType.FLOAT8_E5M2,
        DataType.FLOAT8_E4M3FN,
        DataType.INT4,
        DataType.UINT4,
    ],
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pythons_clients_are_understood(data_type: DataType, shape: tuple[int, ...]) -> None:
    tensor = make_tensor(data_type, shape=shape)
    assert_same(decode_tensor(tf.make_tensor_proto(tensor), alias="x"), tensor)
    assert_same(tf.make_ndarray(encode(tensor)), tensor)


@pytest.mark.parametrize("field_size", [0, 1, 2, 63, 64, 65, 100])
@pytest.mark.parametrize("data_type", PLAIN)
def test_a_list_that_is_not_as_long_as_the_shape(data_type: DataType, field_size: int) -> None:
    """A short one repeats its last value, none gives zeros, and values beyond are dropped."""
    proto = encode(make_tensor(data_type, shape=(field_size,)))
    proto.tensor_shape.dim[0].size = 65
    found = decode_tensor(proto, alias="x")
    assert found.shape == (65,)
    assert_same(found, read_by_tensorflow(proto))


@pytest.mark.parametrize("data_type", QUANTIZED)
def test_a_short_list_of_quantized_integers(data_type: DataType) -> None:
    proto = encode(make_tensor(data_type, shape=(3,)))
    proto.tensor_shape.dim[0].size = 5
    found = decode_tensor(proto, alias="x")
    assert found.dtype == data_type.numpy_dtype
    assert [value[0] for value in found.tolist()] == [0, 1, 2, 2, 2]


def test_one_value_fills_a_shape() -> None:
    proto = make_proto(DataType.FLOAT, shape=(2, 3), float_val=[1.5])
    assert_same(decode_tensor(proto, alias="x"), np.full((2, 3), 1.5, np.float32))


def test_no_strings_are_empty_strings() -> None:
    found = decode_tensor(make_proto(DataType.STRING, shape=(2, 2)), alias="x")
    assert found.tolist() == [[b"", b""], [b"", b""]]


@pytest.mark.parametrize(
    ("data_type", "fields"),
    [
        (DataType.INT8, {"int_val": [300, -200]}),
        (DataType.UINT8, {"int_val": [300, -1]}),
        (DataType.UINT16, {"int_val": [70_000, -1]}),
        (DataType.INT4, {"int_val": [7, 9]}),
        (DataType.HALF, {"half_val": [0x13C00, 0x7C00]}),
        (DataType.BFLOAT16, {"half_val": [0x13F80, 0x7F80]}),
    ],
)
def test_a_number_too_wide_keeps_its_low_bits(data_type: DataType, fields: dict[str, Any]) -> None:
    proto = make_proto(data_type, shape=(2,), **fields)
    assert_same(decode_tensor(proto, alias="x"), read_by_tensorflow(proto))


@pytest.mark.parametrize("num_values", [3, 100])
def test_special_floats_survive(num_values: int) -> None:
    tensor = np.tile(np.float32([np.nan, -np.inf, -0.0]), num_values)
    for use_tensor_content in (False, True):
        found = decode_tensor(encode(tensor, use_tensor_content=use_tensor_content), alias="x")
        assert found.tobytes() == tensor.tobytes()


@pytest.mark.parametrize("strings", [[], [b""], [b"a", b"", b"x" * 200], [b"\x00\xff" * 9000]])
def test_strings_in_tensorflows_own_packing(strings: list[bytes]) -> None:
    lengths = b"".join(tf_varint(len(string)) for string in strings)
    content = lengths + b"".join(strings)
    proto = make_proto(DataType.STRING, shape=(len(strings),), tensor_content=content)
    tensor = np.array([*strings, None], dtype=object)[:-1]
    assert_same(decode_tensor(proto, alias="x"), tensor)
    assert_same(read_by_tensorflow(proto), tensor)


def tf_varint(value: int) -> bytes:
    more = value >> 7
    return bytes([value & 0x7F | (0x80 if more else 0)]) + (tf_varint(more) if more else b"")


def test_strings_are_never_written_in_tensorflows_own_packing() -> None:
    proto = encode(make_tensor(DataType.STRING, shape=(3,)), use_tensor_content=True)
    assert proto.tensor_content == b""
    assert list(proto.string_val) == [b"", b"s1", b"s2s2"]


def test_text_is_written_as_utf8() -> None:
    assert list(encode(np.array(["ä", "b"])).string_val) == ["ä".encode(), b"b"]
    assert list(encode(np.array([b"a", "ä", 1], dtype=object)).string_val) == [
        b"a",
        "ä".encode(),
        b"1",
    ]


@pytest.mark.parametrize("use_tensor_content", [False, True])
@pytest.mark.parametrize("num_rows", [2, 50])
def test_an_array_that_is_not_contiguous(num_rows: int, use_tensor_content: bool) -> None:
    tensor = np.arange(num_rows * 4, dtype=np.float32).reshape(num_rows, 4).T
    assert_same(
        decode_tensor(encode(tensor, use_tensor_content=use_tensor_content), alias="x"), tensor
    )


def test_the_typed_field_is_used_unless_content_is_asked_for() -> None:
    assert len(encode(np.zeros(3, np.float32)).float_val) == 3
    content = encode(np.zeros(3, np.float32), use_tensor_content=True)
    assert content.tensor_content == bytes(12)
    assert len(content.float_val) == 0


def test_a_scalar_has_a_shape_of_no_dimensions() -> None:
    proto = encode(np.array(1, np.int64))
    assert proto.HasField("tensor_shape")
    assert len(proto.tensor_shape.dim) == 0


@pytest.mark.parametrize(
    ("data_type", "shape", "fields"),
    [
        (DataType.INVALID, (1,), {"float_val": [1.0]}),
        (DataType.RESOURCE, (), {}),
        (DataType.VARIANT, (), {}),
        (101, (1,), {"float_val": [1.0]}),
        (77, (1,), {"float_val": [1.0]}),
        (-3, (1,), {"float_val": [1.0]}),
        (DataType.FLOAT, (-1,), {"float_val": [1.0]}),
        (DataType.FLOAT, (2, -1), {"tensor_content": bytes(8)}),
        (DataType.FLOAT, (-1, -1), {"tensor_content": bytes(4)}),
        (DataType.FLOAT, (2,), {"tensor_content": bytes(4)}),
        (DataType.FLOAT, (2,), {"tensor_content": bytes(12)}),
        (DataType.FLOAT, (1,), {"tensor_content": bytes(3)}),
        (DataType.INT64, (1,), {"tensor_content": bytes(4)}),
        (DataType.BOOL, (3,), {"tensor_content": b"\0\1\2"}),
        (DataType.STRING, (2,), {"tensor_content": b"\1\2ab"}),
        (DataType.STRING, (2,), {"tensor_content": b"\1\2abcd"}),
        (DataType.STRING, (2,), {"tensor_content": b"\1"}),
        (DataType.STRING, (1,), {"tensor_content": b"\xff" * 9}),
        (DataType.FLOAT, (2**40,), {}),
        (DataType.FLOAT, (2**40,), {"float_val": [1.0]}),
        (DataType.STRING, (2**24,), {"string_val": [b"a"]}),
        (DataType.FLOAT, (2**25,), {}),
        (DataType.FLOAT, (2**20, 2**20), {"tensor_content": bytes(4)}),
        (DataType.FLOAT, (2**62, 4), {}),
        (DataType.FLOAT, (2**62, 2**62, 0), {}),
        (DataType.FLOAT, (1,) * 255, {"float_val": [1.0]}),
    ],
)
def test_what_is_no_tensor_is_refused(
    data_type: int, shape: tuple[int, ...], fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_tensor(make_proto(data_type, shape=shape, **fields), alias="image")
    assert caught.value.message == "tensor parsing error: image"


def test_values_of_another_types_field_are_ignored() -> None:
    proto = make_proto(DataType.FLOAT, shape=(2,), int_val=[7])
    assert_same(decode_tensor(proto, alias="x"), np.zeros(2, np.float32))


def test_numbers_in_content_are_not_copied() -> None:
    proto = make_proto(DataType.FLOAT, shape=(4,), tensor_content=bytes(16))
    found = decode_tensor(proto, alias="x")
    assert not found.flags.owndata
    assert not found.flags.writeable


def test_what_is_decoded_of_tensor_content_is_a_view() -> None:
    proto = tensor_pb2.TensorProto()
    encode_tensor(np.arange(1000.0).reshape(10, 100), into=proto, use_tensor_content=True)
    decoded = decode_tensor(proto, alias="x")
    owner: object = decoded
    while isinstance(owner, np.ndarray):
        owner = owner.base
    # The bytes object that protobuf gave: it owns the memory, nothing was copied out of it.
    assert isinstance(owner, bytes)
    assert np.shares_memory(decoded, np.frombuffer(owner, np.uint8))


@pytest.mark.parametrize("use_tensor_content", [True, False])
def test_a_view_that_is_not_contiguous(use_tensor_content: bool) -> None:
    tensor = np.arange(600, dtype=np.float32).reshape(20, 30).T
    proto = tensor_pb2.TensorProto()
    encode_tensor(tensor, into=proto, use_tensor_content=use_tensor_content)
    np.testing.assert_array_equal(decode_tensor(proto, alias="x"), tensor)


@pytest.mark.parametrize(
    ("tensor", "use_tensor_content", "num_values"),
    [
        (np.zeros(100, np.float32), False, 0),
        (np.zeros(100, np.float32), True, 0),
        (np.zeros(100, np.int64), False, 100),
        (np.zeros(100, np.int64), True, 0),
        (np.zeros(100, np.float16), False, 100),
        (np.array([b"x"] * 100, object), False, 100),
    ],
)
def test_numbers_and_strings_that_are_taken_one_by_one_are_counted(
    tensor: Tensor, use_tensor_content: bool, num_values: int
) -> None:
    proto = encode(tensor, use_tensor_content=use_tensor_content)
    assert count_walked_values(proto) == num_values


def test_strings_in_tensorflows_own_packing_are_counted_by_their_bytes() -> None:
    content = bytes([1] * 100) + b"x" * 100
    proto = make_proto(DataType.STRING, shape=(100,), tensor_content=content)
    assert count_walked_values(proto) == 200
