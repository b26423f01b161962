"""Bodies of `/infer`: JSON, perhaps followed by raw tensors, and the answers to them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.identity import ModelSpec
from aspira.contracts.tensors import Tensor, Tensors
from aspira.frontends.generation.fields import BadField, Fields, parse_fields
from aspira.frontends.open_inference.data_plane import InferAnswer, InferRequest
from aspira.frontends.open_inference.tensors import (
    check_shape,
    datatype_of,
    from_json,
    from_raw,
    refuse_shared_memory,
    to_json,
    to_raw,
)

HEADER_LENGTH = b"inference-header-content-length"
_MAX_TENSORS = 4096


class InferOrder(NamedTuple):
    """A request, its id, and the outputs that are to be raw; None are all of them."""

    request: InferRequest
    request_id: str
    raw_outputs: frozenset[str] | None


class InferBody(NamedTuple):
    """What answers; `header_length` is that of the JSON if raw tensors follow it."""

    body: bytes
    header_length: int | None


def decode_infer(
    body: bytes, *, headers: Mapping[bytes, bytes], spec: ModelSpec, arrival: float
) -> InferOrder:
    """The request in a body.

    Raises:
        InvalidArgument: it is malformed, or a tensor does not fit its datatype or shape.
    """
    header_length = _header_length(headers, num_bytes=len(body))
    fields = parse_fields(body[:header_length], has_non_finite=True)
    inputs = _decode_inputs(fields, raw=memoryview(body)[header_length:])
    parameters = _object(fields, name="parameters")
    outputs = [_entry(value, name="outputs") for value in fields.list("outputs")]
    raw = frozenset(name for name, one in outputs if one.get("binary_data"))
    is_all_raw = bool(parameters.get("binary_data_output")) and not outputs
    return InferOrder(
        InferRequest(spec, inputs, parameters, tuple(name for name, _ in outputs), arrival),
        fields.text("id", default=""),
        None if is_all_raw else raw,
    )


def encode_infer(answer: InferAnswer, *, order: InferOrder) -> InferBody:
    """The body that answers.

    Raises:
        InvalidArgument: an output cannot be JSON, and was not asked for in binary form.
    """
    outputs, raws = [], []
    for name, tensor in answer.outputs.items():
        described = _describe(name, tensor=tensor)
        if order.raw_outputs is None or name in order.raw_outputs:
            raws.append(to_raw(tensor))
            described["parameters"] = {"binary_data_size": len(raws[-1])}
        else:
            described["data"] = to_json(tensor, name=name)
        outputs.append(described)
    header = orjson.dumps(
        {
            "model_name": answer.servable_id.name,
            "model_version": str(answer.servable_id.version),
            **({"id": order.request_id} if order.request_id else {}),
            "outputs": outputs,
        }
    )
    return InferBody(b"".join([header, *raws]), len(header) if raws else None)


def _describe(name: str, *, tensor: Tensor) -> dict[str, Any]:
    return {"name": name, "datatype": datatype_of(tensor), "shape": list(tensor.shape)}


def _header_length(headers: Mapping[bytes, bytes], *, num_bytes: int) -> int:
    given = headers.get(HEADER_LENGTH)
    if given is None:
        return num_bytes
    if not given.isdigit() or len(given) > 10 or not 0 < int(given) <= num_bytes:
        raise InvalidArgument(
            "Inference-Header-Content-Length must be the number of bytes of the JSON that the body "
            "begins with."
        )
    return int(given)


def _decode_inputs(fields: Fields, *, raw: memoryview) -> Tensors:
    """Raw tensors come one after the other, in the order of the inputs."""
    values = fields.list("inputs")
    if len(values) > _MAX_TENSORS:
        raise BadField(f"inputs has more than {_MAX_TENSORS} tensors.", param="inputs")
    inputs: dict[str, Tensor] = {}
    for value in values:
        name, entry = _named(value, name="inputs")
        if name in inputs:
            raise BadField(f"The input {shorten(name)} is given twice.", param="inputs")
        parameters = _object(entry, name="parameters")
        shown = shorten(name)
        refuse_shared_memory(parameters, name=shown)
        size = parameters.get("binary_data_size")
        if size is None:
            inputs[name] = _decode_json(entry, name=shown)
            continue
        if type(size) is not int or not 0 <= size <= len(raw):
            raise BadField(f"binary_data_size of {shown} is not in the body.", param="inputs")
        inputs[name] = _decode_raw(entry, raw=raw[:size], name=shown)
        raw = raw[size:]
    if raw:
        raise InvalidArgument(f"There are {len(raw)} bytes after the last tensor.")
    return inputs


def _decode_json(entry: Fields, *, name: str) -> Tensor:
    shape = check_shape(entry.list("shape"), name=name)
    datatype = entry.text("datatype", default="")
    return from_json(entry.value("data"), datatype=datatype, shape=shape, name=name)


def _decode_raw(entry: Fields, *, raw: memoryview, name: str) -> Tensor:
    shape = check_shape(entry.list("shape"), name=name)
    return from_raw(raw, datatype=entry.text("datatype", default=""), shape=shape, name=name)


def _named(value: object, *, name: str) -> tuple[str, Fields]:
    fields = Fields(value) if isinstance(value, dict) else Fields({})
    found = fields.text("name")
    if found is None:
        raise BadField(f"{name} must have objects with a name.", param=name)
    return found, fields


def _entry(value: object, *, name: str) -> tuple[str, Mapping[str, Any]]:
    found, fields = _named(value, name=name)
    parameters = _object(fields, name="parameters")
    refuse_shared_memory(parameters, name=shorten(found))
    return found, parameters


def _object(fields: Fields, *, name: str) -> Mapping[str, Any]:
    value = fields.value(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadField(f"{name} must be an object.", param=name)
    return value
