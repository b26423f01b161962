"""Turns one JSON value into the tensor of a dtype.

The shape of a tensor follows from the first element at each level; every value is checked against
it. The common case checks and converts whole lists at once. Only what that cannot take is walked
value by value, to accept the rarer legal values (base64 objects, strings that are not UTF-8) and to
find the first error in the reference's order and words.
"""

from array import array
from collections.abc import Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.contracts.tensors import DataType, Tensor
from aspira.frontends.rest.json_base64 import decode_base64
from aspira.frontends.rest.json_debug import debug_text, json_type_name

MAX_RANK = 64

Shape = tuple[int, ...]

_INT32_RANGE = range(-(2**31), 2**31)
_TOKEN_RANGES = MappingProxyType(
    {
        DataType.INT32: _INT32_RANGE,
        DataType.INT16: _INT32_RANGE,
        DataType.INT8: _INT32_RANGE,
        DataType.UINT8: _INT32_RANGE,
        DataType.INT64: range(-(2**63), 2**63),
        DataType.UINT32: range(2**32),
        DataType.UINT64: range(2**64),
    }
)
_NARROW_RANGES = MappingProxyType(
    {
        DataType.INT16: range(-(2**15), 2**15),
        DataType.INT8: range(-(2**7), 2**7),
        DataType.UINT8: range(2**8),
    }
)
_ELEMENT_TYPES = MappingProxyType(
    {
        DataType.FLOAT: frozenset({int, float}),
        DataType.DOUBLE: frozenset({int, float}),
        DataType.BOOL: frozenset({bool}),
        DataType.STRING: frozenset({str}),
        **dict.fromkeys(_TOKEN_RANGES, frozenset({int})),
    }
)


def convert_value(value: object, *, dtype: DataType) -> Tensor:
    """The tensor of a value as orjson gives it.

    Raises:
        InvalidArgument: it is no tensor of this dtype.
        Unimplemented: JSON cannot carry the dtype.
    """
    shape = nested_shape(value, max_rank=MAX_RANK)
    leaves = _try_collect(value, dtype=dtype, shape=shape)
    if leaves is not None:
        try:
            return build_tensor(leaves, dtype=dtype, shape=shape)
        except OverflowError:
            pass  # The walk below finds the number that is out of range.
    return build_tensor(collect_leaves(value, dtype=dtype, shape=shape), dtype=dtype, shape=shape)


def try_convert_array(numbers: Tensor, *, dtype: DataType) -> Tensor | None:
    """The tensor of an int64 or float64 array, as of the same numbers in lists.

    None if they do not fit; `convert_value` says why.
    """
    if dtype is DataType.DOUBLE:
        return numbers.astype(np.float64, copy=False)
    if dtype is DataType.FLOAT:
        # By way of a double, as every number of a list, and it may become infinite as there.
        with np.errstate(over="ignore"):
            return numbers.astype(np.float64, copy=False).astype(np.float32)
    accepted = _NARROW_RANGES.get(dtype) or _TOKEN_RANGES.get(dtype)
    if accepted is None or numbers.dtype.kind != "i":
        return None
    if int(numbers.min()) not in accepted or int(numbers.max()) not in accepted:
        return None
    return numbers.astype(dtype.numpy_dtype)


def nested_shape(value: object, *, max_rank: int) -> Shape:
    """The shape that the first element at each level has.

    Raises:
        InvalidArgument: there are too many levels.
    """
    shape: list[int] = []
    innermost = value
    while isinstance(innermost, list):
        shape.append(len(innermost))
        if not innermost:
            break
        innermost = innermost[0]
    if len(shape) > max_rank:
        raise InvalidArgument(
            f"JSON Value: {debug_text(value)} has {len(shape)} dimensions, "
            f"more than the {max_rank} that are supported"
        )
    return tuple(shape)


def _try_collect(value: object, *, dtype: DataType, shape: Shape) -> Sequence[object] | None:
    """The leaves in order if they all are what `dtype` commonly takes, integers of any size."""
    level: list[Any] = cast("list[Any]", value) if shape else [value]
    for size in shape[1:]:
        if set(map(type, level)) != {list} or set(map(len, level)) != {size}:
            return None
        level = level[0] if len(level) == 1 else list(chain.from_iterable(level))
    if not set(map(type, level)) <= _ELEMENT_TYPES.get(dtype, frozenset()):
        return None
    if dtype is not DataType.STRING:
        return level
    try:
        return list(map(str.encode, level))
    except UnicodeEncodeError:
        return None


def build_tensor(leaves: Sequence[object], *, dtype: DataType, shape: Shape) -> Tensor:
    """`leaves` as an array of this shape.

    Raises:
        OverflowError: an integer is out of range.
    """
    numpy_dtype = dtype.numpy_dtype
    if numpy_dtype is None:
        raise Unimplemented(f"Conversion of JSON Value: [] to type: {dtype.short_name}")
    if dtype is DataType.FLOAT:
        # As in the reference, a double too large for a float becomes infinite; numpy would warn.
        return np.ndarray(shape, numpy_dtype, array("f", cast("Sequence[float]", leaves)))
    return np.array(leaves, numpy_dtype).reshape(shape)


def collect_leaves(value: object, *, dtype: DataType, shape: Shape) -> list[object]:
    """The leaves of a value in order, each checked against the dtype, all against the shape.

    Raises:
        InvalidArgument: the first that is wrong.
        Unimplemented: JSON cannot carry the dtype.
    """
    leaves: list[object] = []
    _collect_level(value, dtype=dtype, shape=shape, level=0, leaves=leaves)
    return leaves


def _collect_level(
    value: object, *, dtype: DataType, shape: Shape, level: int, leaves: list[object]
) -> None:
    rank = len(shape)
    if not isinstance(value, list):
        if level != rank:
            raise InvalidArgument(
                f"JSON Value: {debug_text(value)} found at incorrect level: {level + 1} "
                f"in the JSON DOM. Expected at level: {rank}"
            )
        leaves.append(_convert_leaf(value, dtype=dtype))
        return
    if level >= rank:
        raise InvalidArgument(f"Encountered list at unexpected level: {level} expected < {rank}")
    if len(value) != shape[level]:
        raise InvalidArgument(
            f"Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}"
        )
    for element in value:
        _collect_level(element, dtype=dtype, shape=shape, level=level + 1, leaves=leaves)


def _convert_leaf(value: object, *, dtype: DataType) -> object:
    if dtype is DataType.STRING and isinstance(value, dict):
        return decode_base64(value)
    accepted = _ELEMENT_TYPES.get(dtype)
    if accepted is None and not isinstance(value, dict):
        raise Unimplemented(
            f"Conversion of JSON Value: {debug_text(value)} to type: {dtype.short_name}"
        )
    if accepted is None or type(value) not in accepted:
        raise _type_error(value, dtype=dtype)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if dtype in _TOKEN_RANGES:
        _check_integer(value, dtype=dtype)
    return value


def _check_integer(value: object, *, dtype: DataType) -> None:
    if value not in _TOKEN_RANGES[dtype]:
        raise _type_error(value, dtype=dtype)
    if dtype in _NARROW_RANGES and value not in _NARROW_RANGES[dtype]:
        raise InvalidArgument(
            f"JSON Value: {debug_text(value)} is out of range for type: {dtype.short_name}"
        )


def _type_error(value: object, *, dtype: DataType) -> InvalidArgument:
    return InvalidArgument(
        f"JSON Value: {debug_text(value)} Type: {json_type_name(value)} "
        f"is not of expected type: {dtype.short_name}"
    )
