"""The messages of `inference.GRPCInferenceService`: those of its fields that are read or written.

Numbers are those of kserve's `open_inference_grpc.proto` and of Triton's `grpc_service.proto` and
`model_config.proto`. A map is, as on the wire, entries with a key and a value.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from aspira.wire.message_fields import MessageField, make_message_classes

_PARAMETERS = "ParameterEntry"
_NAMED_VERSION = (MessageField("name", 1, "string"), MessageField("version", 2, "string"))
_TENSOR = (
    MessageField("name", 1, "string"),
    MessageField("datatype", 2, "string"),
    MessageField("shape", 3, "int64", is_repeated=True),
)
_CONTENTS = (
    *_TENSOR,
    MessageField("parameters", 4, _PARAMETERS, is_repeated=True),
    MessageField("contents", 5, "InferTensorContents"),
)
_MESSAGES: Mapping[str, tuple[MessageField, ...]] = MappingProxyType(
    {
        "ServerLiveRequest": (),
        "ServerLiveResponse": (MessageField("live", 1, "bool"),),
        "ServerReadyRequest": (),
        "ServerReadyResponse": (MessageField("ready", 1, "bool"),),
        "ModelReadyRequest": _NAMED_VERSION,
        "ModelReadyResponse": (MessageField("ready", 1, "bool"),),
        "ServerMetadataRequest": (),
        "ServerMetadataResponse": (
            *_NAMED_VERSION,
            MessageField("extensions", 3, "string", is_repeated=True),
        ),
        "ModelMetadataRequest": _NAMED_VERSION,
        "TensorMetadata": _TENSOR,
        "ModelMetadataResponse": (
            MessageField("name", 1, "string"),
            MessageField("versions", 2, "string", is_repeated=True),
            MessageField("platform", 3, "string"),
            MessageField("inputs", 4, "TensorMetadata", is_repeated=True),
            MessageField("outputs", 5, "TensorMetadata", is_repeated=True),
        ),
        "InferParameter": (
            MessageField("bool_param", 1, "bool", oneof="parameter_choice"),
            MessageField("int64_param", 2, "int64", oneof="parameter_choice"),
            MessageField("string_param", 3, "string", oneof="parameter_choice"),
            MessageField("double_param", 4, "double", oneof="parameter_choice"),
            MessageField("uint64_param", 5, "uint64", oneof="parameter_choice"),
        ),
        _PARAMETERS: (
            MessageField("key", 1, "string"),
            MessageField("value", 2, "InferParameter"),
        ),
        "InferTensorContents": (
            MessageField("bool_contents", 1, "bool", is_repeated=True),
            MessageField("int_contents", 2, "int32", is_repeated=True),
            MessageField("int64_contents", 3, "int64", is_repeated=True),
            MessageField("uint_contents", 4, "uint32", is_repeated=True),
            MessageField("uint64_contents", 5, "uint64", is_repeated=True),
            MessageField("fp32_contents", 6, "float", is_repeated=True),
            MessageField("fp64_contents", 7, "double", is_repeated=True),
            MessageField("bytes_contents", 8, "bytes", is_repeated=True),
        ),
        "InferInputTensor": _CONTENTS,
        "InferRequestedOutputTensor": (
            MessageField("name", 1, "string"),
            MessageField("parameters", 2, _PARAMETERS, is_repeated=True),
        ),
        "InferOutputTensor": _CONTENTS,
        "ModelInferRequest": (
            MessageField("model_name", 1, "string"),
            MessageField("model_version", 2, "string"),
            MessageField("id", 3, "string"),
            MessageField("parameters", 4, _PARAMETERS, is_repeated=True),
            MessageField("inputs", 5, "InferInputTensor", is_repeated=True),
            MessageField("outputs", 6, "InferRequestedOutputTensor", is_repeated=True),
            MessageField("raw_input_contents", 7, "bytes", is_repeated=True),
        ),
        "ModelInferResponse": (
            MessageField("model_name", 1, "string"),
            MessageField("model_version", 2, "string"),
            MessageField("id", 3, "string"),
            MessageField("parameters", 4, _PARAMETERS, is_repeated=True),
            MessageField("outputs", 5, "InferOutputTensor", is_repeated=True),
            MessageField("raw_output_contents", 6, "bytes", is_repeated=True),
        ),
        "ModelStreamInferResponse": (
            MessageField("error_message", 1, "string"),
            MessageField("infer_response", 2, "ModelInferResponse"),
        ),
        "ModelConfigRequest": _NAMED_VERSION,
        "ModelInput": (
            MessageField("name", 1, "string"),
            MessageField("data_type", 2, "int32"),
            MessageField("dims", 4, "int64", is_repeated=True),
            MessageField("optional", 8, "bool"),
        ),
        "ModelOutput": (
            MessageField("name", 1, "string"),
            MessageField("data_type", 2, "int32"),
            MessageField("dims", 3, "int64", is_repeated=True),
        ),
        "ModelTransactionPolicy": (MessageField("decoupled", 1, "bool"),),
        "ModelConfig": (
            MessageField("name", 1, "string"),
            MessageField("platform", 2, "string"),
            MessageField("max_batch_size", 4, "int32"),
            MessageField("input", 5, "ModelInput", is_repeated=True),
            MessageField("output", 6, "ModelOutput", is_repeated=True),
            MessageField("backend", 17, "string"),
            MessageField("model_transaction_policy", 19, "ModelTransactionPolicy"),
        ),
        "ModelConfigResponse": (MessageField("config", 1, "ModelConfig"),),
    }
)

CONFIG_TYPES: Mapping[str, int] = MappingProxyType(
    {
        "BOOL": 1, "UINT8": 2, "UINT16": 3, "UINT32": 4, "UINT64": 5, "INT8": 6, "INT16": 7,
        "INT32": 8, "INT64": 9, "FP16": 10, "FP32": 11, "FP64": 12, "BYTES": 13, "BF16": 14,
    }
)  # fmt: skip
"""Datatypes as numbers of the enum `DataType` in a `ModelConfig`."""


def make_open_inference_messages() -> Mapping[str, Any]:
    """New classes, by name."""
    return make_message_classes("open_inference", package="inference", messages=_MESSAGES)
