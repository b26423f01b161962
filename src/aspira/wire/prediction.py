"""PredictRequest and PredictResponse messages as contracts and back."""

from typing import Any

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version, VersionLabel
from aspira.contracts.inference import PredictRequest, PredictResponse
from aspira.wire.tensor_proto import decode_tensor, encode_tensor

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


def decode_model_spec(message: Message) -> ModelSpec:
    """The ModelSpec of a request message.

    Raises:
        InvalidArgument: it is missing, or names no model.
    """
    if not message.HasField("model_spec"):
        raise InvalidArgument("Missing ModelSpec")
    if not message.model_spec.name:
        raise InvalidArgument("ModelSpec has no name specified.")
    return decode_spec_fields(message.model_spec)


def decode_spec_fields(spec: Message) -> ModelSpec:
    """A ModelSpec message as it is, even if it names no model."""
    choice = spec.WhichOneof("version_choice")
    return ModelSpec(
        ModelName(spec.name),
        version=Version(spec.version.value) if choice == "version" else None,
        label=VersionLabel(spec.version_label) if choice == "version_label" else None,
        signature_name=spec.signature_name,
    )


def decode_predict_request(message: Message, *, deadline: float | None) -> PredictRequest:
    """A PredictRequest message as a request; tensors may be views of the message.

    Raises:
        InvalidArgument: no model, or a tensor that cannot be read.
    """
    spec = decode_model_spec(message)
    inputs = {alias: decode_tensor(proto, alias=alias) for alias, proto in message.inputs.items()}
    return PredictRequest(spec, inputs, tuple(message.output_filter), deadline)


def encode_predict_response(
    response: PredictResponse, *, into: Message, use_tensor_content: bool
) -> None:
    """Fill an empty PredictResponse message."""
    encode_model_spec(response.servable_id, into=into.model_spec)
    into.model_spec.signature_name = response.signature_name
    outputs = into.outputs
    for alias, tensor in response.outputs.items():
        encode_tensor(tensor, into=outputs[alias], use_tensor_content=use_tensor_content)


def encode_model_spec(servable_id: ServableId, *, into: Message) -> None:
    """Say who answered."""
    into.name = servable_id.name
    into.version.value = servable_id.version
