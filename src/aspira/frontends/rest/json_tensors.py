"""Turns the JSON of a predict request into the tensors that its signature asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import numpy as np

from aspira.contracts.errors import InvalidArgument, ServingError, shorten
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor
from aspira.frontends.rest.json_arrays import MIN_ARRAY_BYTES, try_read_document
from aspira.frontends.rest.json_base64 import is_base64
from aspira.frontends.rest.json_debug import debug_text
from aspira.frontends.rest.json_document import parse_document
from aspira.frontends.rest.json_values import (
    MAX_RANK,
    Shape,
    build_tensor,
    collect_leaves,
    convert_value,
    nested_shape,
    try_convert_array,
)

_Specs = Mapping[str, TensorSpec]


class InferenceBody(NamedTuple):
    """A parsed request. An empty `signature_name` asks for the default signature.

    If there is a `text`, `document` was read from it with arrays in the place of large lists.
    """

    signature_name: str
    document: Mapping[str, object]
    text: bytes = b""


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


def parse_predict_body(body: bytes) -> InferenceBody:
    """As `parse_inference_body`, for `decode_inputs`: large lists may be arrays already."""
    if len(body) >= MIN_ARRAY_BYTES:
        document = try_read_document(body)
        if document is not None:
            name = document.get("signature_name", "")
            if isinstance(name, str):
                return InferenceBody(name, document, body)
    return parse_inference_body(body)


def decode_inputs(body: InferenceBody, *, signature: Signature) -> DecodedInputs:
    """The tensors of `body`. Every input is required: `signature.defaults` do not apply in REST.

    Raises:
        InvalidArgument: the values do not fit the signature.
        Unimplemented: a column-format input is of a dtype that JSON cannot carry.
    """
    if not signature.inputs:
        raise InvalidArgument(
            f"Failed to get input map for signature: {shorten(body.signature_name) or 'DEFAULT'}"
        )
    if body.text:
        decoded = _try_take_arrays(body.document, specs=signature.inputs)
        if decoded is not None:
            return decoded
        # The general way takes whatever is legal, and says what is not.
        body = parse_inference_body(body.text)
    document = body.document
    if "instances" in document:
        instances = _checked_instances(document)
        return DecodedInputs(_decode_rows(instances, specs=signature.inputs), is_row_format=True)
    if "inputs" in document:
        columns = _decode_columns(document["inputs"], specs=signature.inputs)
        return DecodedInputs(columns, is_row_format=False)
    raise InvalidArgument("Missing 'inputs' or 'instances' key")


def _try_take_arrays(document: Mapping[str, object], *, specs: _Specs) -> DecodedInputs | None:
    """The inputs of a document whose large lists are arrays, if all is as it commonly is."""
    is_row_format = "instances" in document
    if is_row_format == ("inputs" in document):
        return None
    value = document["instances" if is_row_format else "inputs"]
    columns: Mapping[str, object] | None = None
    if isinstance(value, np.ndarray):
        columns = dict.fromkeys(specs, value) if len(specs) == 1 else None
    elif isinstance(value, list):
        columns = _try_transpose(value, specs=specs) if is_row_format else None
    elif isinstance(value, dict) and not is_row_format:
        columns = value
    if columns is None:
        return None
    inputs = {name: _try_take(columns.get(name), dtype=spec.dtype) for name, spec in specs.items()}
    taken = {name: tensor for name, tensor in inputs.items() if tensor is not None}
    return DecodedInputs(taken, is_row_format) if len(taken) == len(specs) else None


def _try_take(value: object, *, dtype: DataType) -> Tensor | None:
    if isinstance(value, np.ndarray):
        return try_convert_array(value, dtype=dtype)
    is_rows = isinstance(value, list) and value and isinstance(value[0], np.ndarray)
    if is_rows and isinstance(value, list):
        rows = [_try_take(row, dtype=dtype) for row in value]
        taken = [row for row in rows if row is not None]
        is_regular = len(taken) == len(rows) and len({row.shape for row in taken}) == 1
        return np.stack(taken) if is_regular and taken[0].ndim < MAX_RANK else None
    try:
        return convert_value(value, dtype=dtype)
    except ServingError:
        return None


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
            name: convert_value(_member(value, name=name), dtype=spec.dtype)
            for name, spec in specs.items()
        }
    if len(specs) > 1:
        raise InvalidArgument(
            "inputs is a plain value/list, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map"
        )
    ((name, spec),) = specs.items()
    return {name: convert_value(value, dtype=spec.dtype)}


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
            return {
                name: convert_value(columns[name], dtype=spec.dtype) for name, spec in specs.items()
            }
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
    shape: Shape | None = None
    leaves: list[object] = field(default_factory=list)

    def append(self, value: object) -> None:
        shape = nested_shape(value, max_rank=MAX_RANK - 1)
        found = collect_leaves(value, dtype=self.dtype, shape=shape)
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
        return build_tensor(self.leaves, dtype=self.dtype, shape=(num_instances, *self.shape))


def _shape_text(shape: Shape) -> str:
    return f"[{','.join(map(str, shape))}]"
