"""Bodies of `/generate` and `/generate_stream`, and what answers: one flat JSON object each."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from aspira.contracts.identity import ModelSpec
from aspira.frontends.generation.fields import BadField, read_fields
from aspira.frontends.open_inference.data_plane import InferAnswer, TextRequest
from aspira.frontends.open_inference.tensors import to_json


class IdentifiedText(NamedTuple):
    """A request, and its id for the answers; empty if it has none."""

    request: TextRequest
    request_id: str


async def decode_text(body: bytes, *, spec: ModelSpec, arrival: float) -> IdentifiedText:
    """The request in a body, in which all that is not known by name may be an option.

    Raises:
        InvalidArgument: it is malformed.
    """
    fields = await read_fields(body)
    parameters = fields.value("parameters") or {}
    if not isinstance(parameters, dict):
        raise BadField("parameters must be an object.", param="parameters")
    request_id = fields.text("id", default="")
    values = {name: fields.value(name) for name in fields.unread()}
    return IdentifiedText(TextRequest(spec, values, parameters, (), arrival), request_id)


def encode_text(answer: InferAnswer, *, request_id: str) -> bytes:
    """Outputs of one element as values, others as arrays."""
    outputs = {name: to_json(tensor, name=name) for name, tensor in answer.outputs.items()}
    return orjson.dumps(
        {
            **({"id": request_id} if request_id else {}),
            "model_name": answer.servable_id.name,
            "model_version": str(answer.servable_id.version),
            **{name: _unwrap(values) for name, values in outputs.items()},
        }
    )


def _unwrap(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else values
