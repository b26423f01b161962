"""Turns the JSON of a predict request into the tensors that its signature asks for.

The shape of a tensor follows from the first element at each level; every value is checked against
it. The common case checks and converts whole lists at once. Only what that cannot take is walked
value by value, to accept the rarer legal values (base64 objects, strings that are not UTF-8) and to
find the first error in the reference's order and words.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from aspira.contracts.errors import InvalidArgument, ServingError, Unimplemented
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor
from aspira.frontends.rest.json_base64 import decode_base64, is_base64
from aspira.frontends.rest.json_debug import debug_text, json_type_name
from aspira.frontends.rest.json_document import parse_document

MAX_RANK = 64

_Specs = Mapping[str, TensorSpec]
_Shape = tuple[int, ...]

_FLOAT_TYPES = frozenset({DataType.FLOAT, DataType.DOUBLE})
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


class InferenceBody(NamedTuple):
    """A parsed request. An empty `signature_name` asks for the default signature."""

    signature_name: str
    document: Mapping[str, object]


class DecodedInputs(NamedTuple):
    """Tensors by input name; string tensors hold bytes. The answer must have the same format."""

    inputs: dict[str, Tensor]
    is_row_format: bool


class DecodeInputs(Protocol):
    """Makes the tensors of a parsed body; raises as `decode_inputs` does."""

    def __call__(self, body: InferenceBody, *, signature: Signature) -> DecodedInputs: ...


def parse_inference_body(body: bytes | memoryview) -> InferenceBody:
    """The part of decoding that needs no signature.

    Raises:
        InvalidArgument: not JSON, not an object, or `signature_name` is not a string.
    """
    document = parse_document(body)
    if not isinstance(document, dict):
        raise InvalidArgument(f"JSON Value: {debug_text(document)} Is not object")
    signature_name = document.get("signature_name", "")
    if not isinstance(signature_name, str):
        raise InvalidArgument(
            f"JSON Value: {debug_text(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return InferenceBody(signature_name, document)


def decode_inputs(body: InferenceBody, *, signature: Signature) -> DecodedInputs:
    """The tensors of `body`. Every input is required: `signature.defaults` do not apply in REST.

    Raises:
        InvalidArgument: the values do not fit the signature.
        Unimplemented: a column-format input is of a dtype that JSON cannot carry.
    """
    if not signature.inputs:
        raise InvalidArgument(
            f"Failed to get input map for signature: {body.signature_name or 'DEFAULT'}"
        )
    document = body.document
    if "instances" in document:
        instances = _checked_instances(document)
        return DecodedInputs(_decode_rows(instances, specs=signature.inputs), is_row_format=True)
    if "inputs" in document:
        columns = _decode_columns(document["inputs"], specs=signature.inputs)
        return DecodedInputs(columns, is_row_format=False)
    raise InvalidArgument("Missing 'inputs' or 'instances' key")


def _checked_instances(document: Mapping[str, object]) -> list[object]:
    instances = document["instances"]
    if "inputs" in document:
        problem = (
            "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    elif not isinstance(instances, list):
        problem = "Expecting 'instances' to be an list/array"
    elif not instances:
        problem = "No values in 'instances' array"
    else:
        return instances
    raise InvalidArgument(f"JSON Value: {debug_text(document)} {problem}")


def _decode_columns(value: object, *, specs: _Specs) -> dict[str, Tensor]:
    if _is_named(value):
        return {
            name: _convert(_member(value, name=name), dtype=spec.dtype)
            for name, spec in specs.items()
        }
    if len(specs) > 1:
        raise InvalidArgument(
            "inputs is a plain value/list, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map"
        )
    ((name, spec),) = specs.items()
    return {name: _convert(value, dtype=spec.dtype)}


def _member(members: object, *, name: str) -> object:
    assert isinstance(members, dict)
    if name not in members:
        raise InvalidArgument(f"Missing named input: {name} in 'inputs' object.")
    return members[name]


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and not is_base64(value)


def _decode_rows(instances: list[object], *, specs: _Specs) -> dict[str, Tensor]:
    is_named = _is_named(instances[0])
    if len(specs) > 1 and not is_named:
        raise InvalidArgument(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    columns = _try_transpose(instances, specs=specs) if is_named else {next(iter(specs)): instances}
    if columns is not None:
        try:
            return {name: _convert(columns[name], dtype=spec.dtype) for name, spec in specs.items()}
        except ServingError:
            pass  # The walk below finds the error that comes first in the order of instances.
    return _decode_each_row(instances, specs=specs, is_named=is_named)


def _try_transpose(instances: list[Any], *, specs: _Specs) -> dict[str, list[object]] | None:
    """Per input its values, if every instance is an object with exactly the inputs' names."""
    # An instance of one member `b64` could be a value instead of an object.
    if set(map(type, instances)) != {dict} or specs.keys() == {"b64"}:
        return None
    if set(map(len, instances)) != {len(specs)}:
        return None
    try:
        return {name: list(map(itemgetter(name), instances)) for name in specs}
    except KeyError:
        return None


def _decode_each_row(
    instances: list[object], *, specs: _Specs, is_named: bool
) -> dict[str, Tensor]:
    columns = {name: _Column(spec.dtype) for name, spec in specs.items()}
    for index, instance in enumerate(instances):
        if is_named != _is_named(instance):
            expected, found = ("object", "list") if is_named else ("value/list", "object")
            raise InvalidArgument(
                f"Expecting {expected} but got {found} at item {index} of input list"
            )
        if isinstance(instance, dict) and is_named:
            _append_members(columns, instance=instance, index=index)
        else:
            _append(next(iter(columns.values())), value=instance, where=f"{index}")
    return {name: column.build(len(instances)) for name, column in columns.items()}


def _append_members(
    columns: Mapping[str, "_Column"], *, instance: Mapping[str, object], index: int
) -> None:
    for name, value in instance.items():
        _append(columns.get(name), value=value, where=f"{index} key: {name}", name=name)
    if instance.keys() != columns.keys():
        raise InvalidArgument(
            f"Failed to process element: {index} of 'instances' list. "
            f"JSON object: {debug_text(instance)} keys must be equal to: "
            f"{','.join(sorted(columns))}"
        )


def _append(column: "_Column | None", *, value: object, where: str, name: str = "") -> None:
    try:
        if column is None:
            raise InvalidArgument(f"JSON object: does not have named input: {name}")
        column.append(value)
    except ServingError as error:
        raise InvalidArgument(
            f"Failed to process element: {where} of 'instances' list. Error: {error}"
        ) from None


@dataclass(slots=True)
class _Column:
    """One input, gathered instance by instance."""

    dtype: DataType
    shape: _Shape | None = None
    leaves: list[object] = field(default_factory=list)

    def append(self, value: object) -> None:
        shape = _nested_shape(value, max_rank=MAX_RANK - 1)
        found = _collect(value, dtype=self.dtype, shape=shape)
        if self.shape is None:
            self.shape = shape
        size = int(np.prod(self.shape, dtype=np.int64))
        if len(found) != size:
            raise InvalidArgument(f"Expecting tensor size: {size} but got: {len(found)}")
        if shape != self.shape:
            raise InvalidArgument(
                f"Expecting shape {_shape_text(self.shape)} but got: {_shape_text(shape)}"
            )
        self.leaves += found

    def build(self, num_instances: int) -> Tensor:
        assert self.shape is not None
        return _build(self.leaves, dtype=self.dtype, shape=(num_instances, *self.shape))


def _shape_text(shape: _Shape) -> str:
    return f"[{','.join(map(str, shape))}]"


def _convert(value: object, *, dtype: DataType) -> Tensor:
    shape = _nested_shape(value, max_rank=MAX_RANK)
    leaves = _try_collect(value, dtype=dtype, shape=shape)
    if leaves is not None:
        try:
            return _build(leaves, dtype=dtype, shape=shape)
        except OverflowError:
            pass  # The walk below finds the number that is out of range.
    return _build(_collect(value, dtype=dtype, shape=shape), dtype=dtype, shape=shape)


def _nested_shape(value: object, *, max_rank: int) -> _Shape:
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


def _try_collect(value: object, *, dtype: DataType, shape: _Shape) -> Sequence[object] | None:
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


def _build(leaves: Sequence[object], *, dtype: DataType, shape: _Shape) -> Tensor:
    """`leaves` as an array.

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


def _collect(value: object, *, dtype: DataType, shape: _Shape) -> list[object]:
    leaves: list[object] = []
    _collect_level(value, dtype=dtype, shape=shape, level=0, leaves=leaves)
    return leaves


def _collect_level(
    value: object, *, dtype: DataType, shape: _Shape, level: int, leaves: list[object]
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
