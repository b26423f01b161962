"""`tensorflow.serving.ModelService`: the states of versions, and the reload of all models."""

from typing import Any

from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.service.model_config import decode_model_configs
from aspira.service.models import WIRE_STATES, ModelsService
from aspira.wire.prediction import decode_model_spec

_SERVICE = "/tensorflow.serving.ModelService"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


class ModelServicer:
    """Decodes, calls the service once, encodes."""

    def __init__(self, models: ModelsService) -> None:
        from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2

        self._models = models
        self._status_classes = get_model_status_pb2
        self._reload_classes = model_management_pb2

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        return {
            f"{_SERVICE}/GetModelStatus": UnaryMethod(
                self._status_classes.GetModelStatusRequest, self.get_model_status, is_question=True
            ),
            f"{_SERVICE}/HandleReloadConfigRequest": UnaryMethod(
                self._reload_classes.ReloadConfigRequest,
                self.reload_config,
                can_be_dropped=False,
            ),
        }

    async def get_model_status(self, call: UnaryCall) -> Message:
        """The GetModelStatus method."""
        answer = self._status_classes.GetModelStatusResponse()
        states = self._status_classes.ModelVersionStatus.State
        for status in self._models.statuses(decode_model_spec(call.message)):
            entry = answer.model_version_status.add()
            entry.version = status.version
            entry.state = states.Value(WIRE_STATES[status.state])
            entry.status.error_code = status.error.code if status.error else 0
            entry.status.error_message = status.error.message if status.error else ""
        return answer

    async def reload_config(self, call: UnaryCall) -> Message:
        """The HandleReloadConfigRequest method: a full replacement, settled when it returns."""
        if call.message.metric_names:
            raise Unimplemented(
                "ReloadConfigRequest.metric_names is not supported; metrics are served over HTTP"
            )
        if call.message.config.WhichOneof("config") != "model_config_list":
            raise InvalidArgument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported"
            )
        configs = decode_model_configs(call.message.config)
        assert configs is not None
        await self._models.reload(configs)
        answer = self._reload_classes.ReloadConfigResponse()
        answer.status.SetInParent()
        return answer
