"""Tensors as the Open Inference Protocol writes them, in JSON and in raw bytes, and back.

Source: kserve/open-inference-protocol, `inference_rest.md`; Triton's binary tensor data extension.
Raw bytes are little-endian, row after row; an element of BYTES is its length in four bytes, then
itself.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import orjson

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.tensors import DataType, Tensor

BYTES = "BYTES"
_DTYPES: Mapping[str, np.dtype[np.generic]] = MappingProxyType(
    {
        "BOOL": np.dtype(np.bool_),
        "UINT8": np.dtype(np.uint8),
        "UINT16": np.dtype(np.uint16),
        "UINT32": np.dtype(np.uint32),
        "UINT64": np.dtype(np.uint64),
        "INT8": np.dtype(np.int8),
        "INT16": np.dtype(np.int16),
        "INT32": np.dtype(np.int32),
        "INT64": np.dtype(np.int64),
        "FP16": np.dtype(np.float16),
        "FP32": np.dtype(np.float32),
        "FP64": np.dtype(np.float64),
        "BF16": np.dtype(ml_dtypes.bfloat16),
        BYTES: np.dtype(np.object_),
    }
)
_DATATYPES = MappingProxyType({dtype: name for name, dtype in _DTYPES.items()})
# What JSON's values become by themselves, and which of that a datatype takes.
_KINDS: Mapping[str, str] = MappingProxyType({"b": "b", "u": "iu", "i": "iu", "f": "fiu"})
_ONLY_RAW = frozenset({"FP16", "BF16"})
_LENGTH = struct.Struct("<I")
_MAX_RANK = 32
_MAX_ELEMENTS = 2**31 - 1
_SHARED_MEMORY = "shared_memory_region"

Shape = tuple[int, ...]


def datatype_of(tensor: Tensor) -> str:
    """What the protocol calls the elements of a tensor.

    Raises:
        InvalidArgument: it has no word for them.
    """
    if tensor.dtype.kind in "SU":
        return BYTES
    found = _DATATYPES.get(tensor.dtype)
    if found is None:
        raise InvalidArgument(
            f"The protocol has no datatype for {tensor.dtype}; ask by gRPC Predict."
        )
    return found


def datatype_name(data_type: DataType) -> str:
    """The same for a signature; a type that the protocol lacks keeps TensorFlow's name."""
    dtype = data_type.numpy_dtype
    return data_type.wire_name if dtype is None else _DATATYPES.get(dtype, data_type.wire_name)


def check_shape(shape: Sequence[Any], *, name: str) -> Shape:
    """The shape of an input.

    Raises:
        InvalidArgument: it is none.
    """
    is_sound = all(type(size) is int and 0 <= size < 2**31 for size in shape)
    if not is_sound or len(shape) > _MAX_RANK:
        raise InvalidArgument(f"The shape of {name} must be at most {_MAX_RANK} sizes from 0.")
    # One without elements is not exempt: numpy multiplies the other sizes.
    if math.prod(size or 1 for size in shape) > _MAX_ELEMENTS:
        raise InvalidArgument(f"The shape of {name} has more than {_MAX_ELEMENTS} elements.")
    return tuple(shape)


def refuse_shared_memory(parameters: Mapping[str, Any], *, name: str) -> None:
    """Data of clients on the same machine that is not in the message.

    Raises:
        InvalidArgument: a tensor's parameters ask for that.
    """
    if _SHARED_MEMORY in parameters:
        raise InvalidArgument(
            f"{name} is in shared memory, which is not supported here; send it in the request."
        )


def from_json(data: object, *, datatype: str, shape: Shape, name: str) -> Tensor:
    """A tensor from JSON, nested or flat.

    Raises:
        InvalidArgument: the values do not fit datatype or shape.
    """
    dtype = _dtype(datatype, name=name)
    if datatype in _ONLY_RAW:
        raise InvalidArgument(f"{name}: {datatype} travels in binary form alone.")
    if not isinstance(data, list):
        raise InvalidArgument(f"The data of {name} must be an array.")
    if datatype == BYTES:
        texts = [_as_bytes(value, name=name) for value in _flatten(data)]
        return from_values(texts, datatype=datatype, shape=shape, name=name)
    try:
        given = np.asarray(data)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"The data of {name} is not even.") from None
    if given.size and given.dtype.kind not in _KINDS[dtype.kind]:
        raise InvalidArgument(f"The data of {name} has values that are no {datatype}.")
    return from_values(given.reshape(-1), datatype=datatype, shape=shape, name=name)


def from_values(values: Any, *, datatype: str, shape: Shape, name: str) -> Tensor:
    """A tensor from as many values, in a flat array or sequence.

    Raises:
        InvalidArgument: they do not fit datatype or shape.
    """
    dtype = _dtype(datatype, name=name)
    _check_count(len(values), shape=shape, name=name)
    if dtype.kind == "O":
        tensor = np.empty(len(values), np.object_)
        tensor[:] = values
        return tensor.reshape(shape)
    given = np.asarray(values)
    out_of_range = InvalidArgument(f"The data of {name} has values out of the range of {datatype}.")
    try:
        with np.errstate(over="raise", invalid="ignore"):
            tensor = given.astype(dtype)
    except FloatingPointError:
        raise out_of_range from None
    if dtype.kind in "iu" and not np.array_equal(tensor, given):
        raise out_of_range
    return tensor.reshape(shape)


def from_raw(raw: bytes | memoryview, *, datatype: str, shape: Shape, name: str) -> Tensor:
    """A tensor from raw bytes, of which it may be a view.

    Raises:
        InvalidArgument: they do not fit datatype or shape.
    """
    dtype = _dtype(datatype, name=name)
    if dtype.kind == "O":
        texts = list(_split_texts(raw, name=name))
        return from_values(texts, datatype=datatype, shape=shape, name=name)
    if len(raw) % dtype.itemsize:
        raise InvalidArgument(f"The raw data of {name} is not a whole number of {datatype}.")
    _check_count(len(raw) // dtype.itemsize, shape=shape, name=name)
    tensor = np.frombuffer(raw, dtype).reshape(shape)
    # In a body tensors begin anywhere, and runtimes may want them where their type does.
    return tensor if tensor.flags.aligned else tensor.copy()


def to_json(tensor: Tensor, *, name: str) -> list[Any]:
    """A tensor's values for orjson, flat.

    NaN and infinities, for which JSON has no word, are the words that Triton and TensorFlow Serving
    have for them. With null instead, a client would take a number that is none for one that is not
    there.

    Raises:
        InvalidArgument: they can travel in binary form alone.
    """
    datatype = datatype_of(tensor)
    if datatype in _ONLY_RAW:
        raise InvalidArgument(f"{name}: {datatype} travels in binary form alone; ask for that.")
    values: list[Any] = tensor.reshape(-1).tolist()
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        return [one if math.isfinite(one) else orjson.Fragment(json.dumps(one)) for one in values]
    if datatype != BYTES:
        return values
    try:
        return [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError:
        raise InvalidArgument(f"{name} is not text; ask for it in binary form.") from None


def to_raw(tensor: Tensor) -> bytes:
    """A tensor's raw bytes."""
    if datatype_of(tensor) != BYTES:
        return np.ascontiguousarray(tensor).tobytes()
    parts: list[bytes] = []
    for value in tensor.reshape(-1).tolist():
        text = value.encode() if isinstance(value, str) else value
        parts += (_LENGTH.pack(len(text)), text)
    return b"".join(parts)


def _dtype(datatype: str, *, name: str) -> np.dtype[np.generic]:
    found = _DTYPES.get(datatype)
    if found is None:
        raise InvalidArgument(f"{name} has the unknown datatype {shorten(datatype)!r}.")
    return found


def _check_count(count: int, *, shape: Shape, name: str) -> None:
    if count != math.prod(shape):
        raise InvalidArgument(
            f"{name} has {count} values, and its shape {list(shape)} has {math.prod(shape)}."
        )


def _flatten(data: list[Any]) -> Iterator[Any]:
    """Values in their order; a stack of ours, since clients choose the depth."""
    stack = [iter(data)]
    while stack:
        for value in stack[-1]:
            if isinstance(value, list):
                stack.append(iter(value))
                break
            yield value
        else:
            stack.pop()


def _as_bytes(value: object, *, name: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(f"The data of {name} has values that are no strings.")
    return value.encode()


def _split_texts(raw: bytes | memoryview, *, name: str) -> Iterator[bytes]:
    begin = 0
    while begin < len(raw):
        body = begin + _LENGTH.size
        if body > len(raw):
            raise InvalidArgument(f"The raw data of {name} ends within a length.")
        end = body + _LENGTH.unpack(raw[begin:body])[0]
        if end > len(raw):
            raise InvalidArgument(f"The raw data of {name} ends within a string.")
        yield bytes(raw[body:end])
        begin = end
