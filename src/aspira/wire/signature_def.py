"""SignatureDef messages as contracts and back."""

from collections.abc import Mapping
from typing import Any

from aspira.contracts.signatures import Shape, Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.wire.tensor_proto import decode_tensor, encode_tensor

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

# A TF1 graph may name a variable itself, whose dtype is `DT_FLOAT_REF`: 100 more than `DT_FLOAT`.
_REFERENCE = 100


def decode_signature(message: Message) -> Signature:
    """A SignatureDef; inputs and outputs come in the order of their aliases.

    Raises:
        InvalidArgument: a default value that cannot be read.
    """
    return Signature(
        inputs=_decode_specs(message.inputs),
        outputs=_decode_specs(message.outputs),
        method_name=message.method_name,
        defaults={
            alias: decode_tensor(proto, alias=alias)
            for alias, proto in sorted(message.defaults.items())
        },
    )


def encode_signature(signature: Signature, *, into: Message) -> None:
    """Fill an empty SignatureDef."""
    into.method_name = signature.method_name
    for specs, field in ((signature.inputs, into.inputs), (signature.outputs, into.outputs)):
        for alias, spec in specs.items():
            _encode_spec(spec, into=field[alias])
    for alias, tensor in signature.defaults.items():
        encode_tensor(tensor, into=into.defaults[alias])


def describe_signature(signature: Signature) -> str:
    """The SignatureDef in protobuf's text format, for error messages."""
    from google.protobuf import text_format
    from tensorflow.core.protobuf import meta_graph_pb2

    message = meta_graph_pb2.SignatureDef()
    encode_signature(signature, into=message)
    return str(text_format.MessageToString(message))


def _decode_specs(field: Mapping[str, Message]) -> dict[str, TensorSpec]:
    return {alias: _decode_spec(info) for alias, info in sorted(field.items())}


def _decode_spec(message: Message) -> TensorSpec:
    data_type = DataType(message.dtype % _REFERENCE)
    return TensorSpec(data_type, _decode_shape(message.tensor_shape), runtime_name=message.name)


def _decode_shape(message: Message) -> Shape | None:
    if message.unknown_rank:
        return None
    return tuple(None if dim.size < 0 else int(dim.size) for dim in message.dim)


def _encode_spec(spec: TensorSpec, *, into: Message) -> None:
    into.name = spec.runtime_name
    into.dtype = spec.dtype.value
    into.tensor_shape.SetInParent()
    if spec.shape is None:
        into.tensor_shape.unknown_rank = True
        return
    for size in spec.shape:
        into.tensor_shape.dim.add().size = -1 if size is None else size
