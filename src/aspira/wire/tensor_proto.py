"""TensorProto to numpy and back, without a Python object per number.

`tensor_content` becomes a view of the message's bytes, except for strings. The typed fields of
floats, doubles and bools are stored on the wire exactly as numpy stores them, so they are cut out
of, or pasted into, the serialized message; the varint fields have to be walked, which protobuf
does in C.
"""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, Tensor, data_type_of

# `tensorflow.TensorProto`; typed as Any because its class is generated at TensorFlow's import.
TensorProto = Any

_MAX_RANK = 254
_MAX_ELEMENTS = 2**31
# A few bytes may ask for a tensor of any size by giving a shape and no values.
_MAX_EXPANDED_BYTES = 64 * 2**20
_SMALL = 64
# By number: asking the class for its member takes longer.
_DATA_TYPES: Mapping[int, DataType] = MappingProxyType({one.value: one for one in DataType})
_STORAGE = MappingProxyType({1: np.uint8, 2: np.uint16, 4: np.int32})

_INTEGERS = (
    DataType.INT32, DataType.INT16, DataType.INT8, DataType.UINT16, DataType.UINT8,
    DataType.QINT8, DataType.QUINT8, DataType.QINT16, DataType.QUINT16, DataType.QINT32,
    DataType.INT4, DataType.UINT4, DataType.INT2, DataType.UINT2,
)  # fmt: skip
_SMALL_FLOATS = (
    DataType.FLOAT8_E5M2, DataType.FLOAT8_E4M3FN, DataType.FLOAT8_E4M3FNUZ,
    DataType.FLOAT8_E4M3B11FNUZ, DataType.FLOAT8_E5M2FNUZ, DataType.FLOAT4_E2M1FN,
)  # fmt: skip
_TYPED_FIELD: Mapping[DataType, str] = MappingProxyType(
    {
        DataType.FLOAT: "float_val",
        DataType.DOUBLE: "double_val",
        DataType.STRING: "string_val",
        DataType.BOOL: "bool_val",
        DataType.INT64: "int64_val",
        DataType.UINT32: "uint32_val",
        DataType.UINT64: "uint64_val",
        DataType.COMPLEX64: "scomplex_val",
        DataType.COMPLEX128: "dcomplex_val",
        DataType.HALF: "half_val",
        DataType.BFLOAT16: "half_val",
        **dict.fromkeys(_INTEGERS, "int_val"),
        **dict.fromkeys(_SMALL_FLOATS, "float8_val"),
    }
)

# Packed fields whose wire bytes are numpy's: key byte (field number, wire type 2) and stored dtype.
_RAW_FIELD: Mapping[str, tuple[bytes, np.dtype[Any]]] = MappingProxyType(
    {
        "float_val": (b"\x2a", np.dtype("<f4")),
        "double_val": (b"\x32", np.dtype("<f8")),
        "bool_val": (b"\x5a", np.dtype(np.bool_)),
        "scomplex_val": (b"\x4a", np.dtype("<f4")),
        "dcomplex_val": (b"\x62", np.dtype("<f8")),
    }
)


def decode_tensor(proto: TensorProto, *, alias: str) -> Tensor:
    """The array of a TensorProto; it may share memory with the message and is not to be written.

    A typed field shorter than the shape repeats its last value, an empty one gives zeros (empty
    strings), values beyond the shape are dropped: TensorFlow's rules.

    Raises:
        InvalidArgument: `tensor parsing error: <alias>`, when the message is not a tensor.
    """
    try:
        return _decode(proto)
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        raise InvalidArgument(f"tensor parsing error: {alias}") from error


def count_walked_values(proto: TensorProto) -> int:
    """How many values `decode_tensor` takes one by one at most. Others it copies or looks at."""
    data_type = _DATA_TYPES.get(proto.dtype)
    field = _TYPED_FIELD.get(data_type) if data_type is not None else None
    if field is None or field in _RAW_FIELD or field == "float8_val":
        return 0
    content = proto.tensor_content if data_type is DataType.STRING else b""
    return max(len(getattr(proto, field)), len(content))


def encode_tensor(tensor: Tensor, *, into: TensorProto, use_tensor_content: bool = False) -> None:
    """Fill an empty TensorProto, with the typed field unless `tensor_content` is asked for.

    Strings always use `string_val`: their `tensor_content` form is private to TensorFlow.
    """
    data_type = data_type_of(tensor)
    if use_tensor_content and data_type is not DataType.STRING:
        _fill_header(into, data_type=data_type, shape=tensor.shape)
        into.tensor_content = tensor.tobytes()
        return
    _fill_header(into, data_type=data_type, shape=tensor.shape)
    field = _TYPED_FIELD.get(data_type)
    if field is None:
        into.tensor_content = tensor.tobytes()
    elif field == "float8_val":
        into.float8_val = tensor.tobytes()
    elif field in _RAW_FIELD and tensor.size >= _SMALL:
        key = _RAW_FIELD[field][0] + _varint(tensor.nbytes)
        into.MergeFromString(b"".join((key, np.ascontiguousarray(tensor).data)))
    else:
        getattr(into, field).extend(_list_values(tensor.ravel(), field=field))


def is_written_raw(tensor: Tensor, *, use_tensor_content: bool) -> bool:
    """Whether `encode_tensor` ends the message with the very bytes that numpy stores."""
    data_type = data_type_of(tensor)
    if data_type is DataType.STRING:
        return False
    field = _TYPED_FIELD.get(data_type)
    return use_tensor_content or field in {None, "float8_val"} or field in _RAW_FIELD


def _decode(proto: TensorProto) -> Tensor:
    data_type = _DATA_TYPES[proto.dtype]
    dtype = data_type.numpy_dtype
    if dtype is None:
        raise ValueError(data_type)
    shape = [dim.size for dim in proto.tensor_shape.dim]
    num_elements = _count_elements(shape)
    content = proto.tensor_content
    if content:
        return _read_content(content, dtype=dtype, num_elements=num_elements).reshape(shape)
    flat = _read_values(proto, data_type=data_type, limit=num_elements)
    if flat.size != num_elements:
        flat = _fit(flat, num_elements=num_elements, dtype=dtype)
    return flat.reshape(shape)


def _count_elements(shape: list[int]) -> int:
    num_elements = prod(shape)
    # numpy would take a -1 for "whatever fits".
    if len(shape) > _MAX_RANK or (shape and min(shape) < 0) or num_elements > _MAX_ELEMENTS:
        raise ValueError(shape)
    return num_elements


def _read_content(content: bytes, *, dtype: np.dtype[Any], num_elements: int) -> Tensor:
    if dtype.kind == "O":
        return _read_strings(content, num_strings=num_elements)
    flat: Tensor = np.frombuffer(content, dtype)
    # A bool of another byte is neither true nor false to the code that reads it.
    if dtype.kind == "b" and flat.view(np.uint8).max() > 1:
        raise ValueError(dtype)
    return flat


def _read_strings(content: bytes, *, num_strings: int) -> Tensor:
    """The strings as TensorFlow packs them: each one's length as a varint, then all their bytes."""
    position = 0
    lengths = []
    for _ in range(num_strings):
        length, position = read_varint(content, start=position)
        lengths.append(length)
    if position + sum(lengths) != len(content):
        raise ValueError(len(content))
    strings = np.empty(num_strings, dtype=object)
    for index, length in enumerate(lengths):
        strings[index] = content[position : position + length]
        position += length
    return strings


def _read_values(proto: TensorProto, *, data_type: DataType, limit: int) -> Tensor:
    """The values of the typed field, as a flat array of the tensor's dtype."""
    dtype = data_type.numpy_dtype
    assert dtype is not None
    field = _TYPED_FIELD[data_type]
    values = getattr(proto, field)
    if field in _RAW_FIELD:
        raw = _read_raw(values, field=field, owner=proto)
        return raw if raw.dtype == dtype else raw.view(dtype)
    if field == "float8_val":
        return np.frombuffer(values, dtype)
    if field == "string_val":
        strings = np.empty(min(len(values), limit), dtype=object)
        strings[:] = values[:limit]
        return strings
    if field in {"int_val", "half_val"}:
        # Narrow types keep the low bits, as a C++ cast does.
        wide = np.fromiter(values, np.int32, len(values))
        return wide.astype(_STORAGE.get(dtype.itemsize, np.int32)).view(dtype)
    return np.fromiter(values, dtype, len(values))


def _read_raw(values: Any, *, field: str, owner: TensorProto) -> Tensor:
    dtype = _RAW_FIELD[field][1]
    if len(values) < _SMALL:
        return np.fromiter(values, dtype, len(values))
    lone = type(owner)()
    getattr(lone, field).MergeFrom(values)
    serialized = lone.SerializeToString()
    return np.frombuffer(serialized, dtype, offset=len(serialized) - len(values) * dtype.itemsize)


def _fit(flat: Tensor, *, num_elements: int, dtype: np.dtype[Any]) -> Tensor:
    if flat.size > num_elements:
        return flat[:num_elements]
    if num_elements * dtype.itemsize > _MAX_EXPANDED_BYTES:
        raise ValueError(num_elements)
    if flat.size == 0:
        if dtype.kind == "O":
            return np.full(num_elements, b"", dtype=object)
        return np.zeros(num_elements, dtype)
    fitted = np.full(num_elements, flat[-1], dtype=dtype)
    fitted[: flat.size] = flat
    return fitted


def _fill_header(into: TensorProto, *, data_type: DataType, shape: tuple[int, ...]) -> None:
    into.dtype = data_type.value
    dims = into.tensor_shape
    dims.SetInParent()
    for size in shape:
        dims.dim.add().size = size


def _list_values(flat: Tensor, *, field: str) -> list[Any]:
    if field == "string_val":
        return [_as_bytes(value) for value in flat.tolist()]
    if field == "half_val":
        flat = flat.view(np.uint16)
    elif field in {"scomplex_val", "dcomplex_val"}:
        flat = flat.view(_RAW_FIELD[field][1])
    elif flat.dtype.names is not None:
        # Quantized integers are records of one field.
        storage: Any = flat.dtype
        flat = flat.view(storage[0])
    elif field == "int_val":
        flat = flat.astype(np.int32)
    values: list[Any] = flat.tolist()
    return values


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def read_varint(encoded: bytes, *, start: int) -> tuple[int, int]:
    """A number of at most 32 bits, and where it ends."""
    value = 0
    for position, byte in enumerate(encoded[start : start + 5]):
        value |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return value, start + position + 1
    raise ValueError(start)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
