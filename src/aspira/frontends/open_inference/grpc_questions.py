"""What `inference.GRPCInferenceService` tells of the server and its models."""

from collections.abc import Iterable, Mapping
from typing import Any

from aspira.contracts.errors import ServingError
from aspira.contracts.identity import ModelSpec
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.frontends.open_inference.descriptions import (
    EXTENSIONS,
    SERVER_NAME,
    SERVER_VERSION,
    Descriptions,
    TensorDescription,
)
from aspira.frontends.open_inference.grpc_inference import SERVICE
from aspira.frontends.open_inference.infer_messages import decode_spec
from aspira.wire.open_inference import CONFIG_TYPES

# Message classes are generated, hence Any.
Message = Any


class QuestionsServicer:
    """Answered even while the server shuts down. `classes` are those of the messages."""

    def __init__(self, descriptions: Descriptions, *, classes: Mapping[str, Any]) -> None:
        self._descriptions = descriptions
        self._classes = classes

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        answers = {
            "ServerLive": self.server_live,
            "ServerReady": self.server_ready,
            "ServerMetadata": self.server_metadata,
            "ModelReady": self.model_ready,
            "ModelMetadata": self.model_metadata,
            "ModelConfig": self.model_config,
        }
        return {
            f"{SERVICE}/{name}": UnaryMethod(
                self._classes[f"{name}Request"], answer, is_question=True
            )
            for name, answer in answers.items()
        }

    async def server_live(self, call: UnaryCall) -> Message:  # noqa: ARG002
        """The ServerLive method."""
        return self._classes["ServerLiveResponse"](live=True)

    async def server_ready(self, call: UnaryCall) -> Message:  # noqa: ARG002
        """The ServerReady method."""
        return self._classes["ServerReadyResponse"](ready=self._descriptions.is_ready)

    async def server_metadata(self, call: UnaryCall) -> Message:  # noqa: ARG002
        """The ServerMetadata method."""
        return self._classes["ServerMetadataResponse"](
            name=SERVER_NAME, version=SERVER_VERSION, extensions=EXTENSIONS
        )

    async def model_ready(self, call: UnaryCall) -> Message:
        """The ModelReady method: a model that nobody knows is not ready, which is no error."""
        try:
            self._descriptions.check_ready(_spec_of(call))
        except ServingError:
            return self._classes["ModelReadyResponse"](ready=False)
        return self._classes["ModelReadyResponse"](ready=True)

    async def model_metadata(self, call: UnaryCall) -> Message:
        """The ModelMetadata method."""
        model = self._descriptions.describe(_spec_of(call))
        return self._classes["ModelMetadataResponse"](
            name=model.name,
            versions=[str(version) for version in model.versions],
            platform=model.platform,
            inputs=self._describe(model.inputs),
            outputs=self._describe(model.outputs),
        )

    async def model_config(self, call: UnaryCall) -> Message:
        """The ModelConfig method, by which load generators learn that a model streams."""
        model = self._descriptions.describe(_spec_of(call))
        answer = self._classes["ModelConfigResponse"]()
        config = answer.config
        config.name, config.platform, config.backend = model.name, model.platform, SERVER_NAME
        config.model_transaction_policy.decoupled = model.is_decoupled
        for one in model.inputs:
            config.input.add(
                name=one.name,
                data_type=CONFIG_TYPES.get(one.datatype, 0),
                dims=one.shape,
                optional=one.is_optional,
            )
        for one in model.outputs:
            data_type = CONFIG_TYPES.get(one.datatype, 0)
            config.output.add(name=one.name, data_type=data_type, dims=one.shape)
        return answer

    def _describe(self, tensors: Iterable[TensorDescription]) -> list[Message]:
        make = self._classes["TensorMetadata"]
        return [make(name=one.name, datatype=one.datatype, shape=one.shape) for one in tensors]


def _spec_of(call: UnaryCall) -> ModelSpec:
    return decode_spec(call.message.name, version=call.message.version)
