"""`tensorflow.serving.ModelService`: the states of versions, and the reload of all models."""

from collections.abc import Callable
from typing import Any

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.service.model_config import decode_model_configs
from aspira.service.models import WIRE_STATES, ModelsService
from aspira.wire.prediction import decode_model_spec

_SERVICE = "/tensorflow.serving.ModelService"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


class ModelServicer:
    """Decodes, calls the service once, encodes.

    `read_counter` gives a metric's value by TensorFlow's name of it, 0 if there is none.
    """

    def __init__(self, models: ModelsService, *, read_counter: Callable[[str], int]) -> None:
        from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2

        self._models = models
        self._read_counter = read_counter
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
        if call.message.config.WhichOneof("config") != "model_config_list":
            raise InvalidArgument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported"
            )
        configs = decode_model_configs(call.message.config)
        assert configs is not None
        before = {name: self._read_counter(name) for name in call.message.metric_names}
        await self._models.reload(configs)
        answer = self._reload_classes.ReloadConfigResponse()
        answer.status.SetInParent()
        for name, value in before.items():
            answer.metric.add(name=name, int64_value_increase=self._read_counter(name) - value)
        return answer
