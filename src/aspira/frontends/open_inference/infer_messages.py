"""`ModelInferRequest` to what the data plane takes, and its answers as `ModelInferResponse`."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.identity import ModelName, ModelSpec
from aspira.contracts.tensors import Tensor, Tensors
from aspira.frontends.open_inference.data_plane import InferAnswer, InferRequest
from aspira.frontends.open_inference.routes import parse_version
from aspira.frontends.open_inference.tensors import (
    check_shape,
    datatype_of,
    from_raw,
    from_values,
    refuse_shared_memory,
    to_raw,
)

# Message classes are generated, hence Any.
Message = Any

_CONTENTS: Mapping[str, str] = MappingProxyType(
    {
        "BOOL": "bool_contents",
        "INT8": "int_contents",
        "INT16": "int_contents",
        "INT32": "int_contents",
        "INT64": "int64_contents",
        "UINT8": "uint_contents",
        "UINT16": "uint_contents",
        "UINT32": "uint_contents",
        "UINT64": "uint64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        "BYTES": "bytes_contents",
    }
)


def decode_spec(name: str, *, version: str) -> ModelSpec:
    """A model as the protocol names it.

    Raises:
        InvalidArgument: no name, or no version that there could be.
    """
    if not name:
        raise InvalidArgument("The request names no model.")
    return ModelSpec(ModelName(name), version=parse_version(version))


def decode_infer_request(message: Message, *, arrival: float) -> InferRequest:
    """A request without deadline and priority.

    Raises:
        InvalidArgument: it is malformed, or a tensor does not fit its datatype or shape.
    """
    for output in message.outputs:
        refuse_shared_memory(decode_parameters(output.parameters), name=shorten(output.name))
    return InferRequest(
        decode_spec(message.model_name, version=message.model_version),
        _decode_inputs(message),
        decode_parameters(message.parameters),
        tuple(output.name for output in message.outputs),
        arrival,
    )


def decode_parameters(entries: Iterable[Message]) -> dict[str, Any]:
    """Parameters by name; those without a value are left out."""
    parameters = {}
    for entry in entries:
        choice = entry.value.WhichOneof("parameter_choice")
        if choice is not None:
            parameters[entry.key] = getattr(entry.value, choice)
    return parameters


def encode_infer_response(answer: InferAnswer, *, request_id: str, into: Message) -> None:
    """Fill an empty ModelInferResponse; outputs are raw."""
    into.model_name = answer.servable_id.name
    into.model_version = str(answer.servable_id.version)
    into.id = request_id
    for name, tensor in answer.outputs.items():
        into.outputs.add(name=name, datatype=datatype_of(tensor), shape=tensor.shape)
        into.raw_output_contents.append(to_raw(tensor))


def _decode_inputs(message: Message) -> Tensors:
    raws = message.raw_input_contents
    if raws and len(raws) != len(message.inputs):
        raise InvalidArgument(
            f"There are {len(message.inputs)} inputs and {len(raws)} raw contents; raw contents "
            "are for all inputs or for none."
        )
    inputs: dict[str, Tensor] = {}
    for index, entry in enumerate(message.inputs):
        shown = shorten(entry.name)
        if entry.name in inputs:
            raise InvalidArgument(f"The input {shown} is given twice.")
        refuse_shared_memory(decode_parameters(entry.parameters), name=shown)
        if not raws:
            inputs[entry.name] = _decode_contents(entry)
            continue
        if entry.HasField("contents"):
            raise InvalidArgument(f"{shown} has contents beside raw contents.")
        shape = check_shape(entry.shape, name=shown)
        inputs[entry.name] = from_raw(raws[index], datatype=entry.datatype, shape=shape, name=shown)
    return inputs


def _decode_contents(entry: Message) -> Tensor:
    shown = shorten(entry.name)
    field = _CONTENTS.get(entry.datatype)
    if field is None:
        raise InvalidArgument(
            f"{shown} has the datatype {shorten(entry.datatype)!r}; contents are of one of "
            f"{', '.join(_CONTENTS)}, others travel in raw contents."
        )
    return from_values(
        getattr(entry.contents, field),
        datatype=entry.datatype,
        shape=check_shape(entry.shape, name=shown),
        name=shown,
    )
