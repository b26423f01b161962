"""`tensorflow.serving.PredictionService`: predictions and model metadata."""

import asyncio
from functools import partial
from typing import Any

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code, InvalidArgument, ServingError, shorten
from aspira.contracts.events import EventBus, RequestEnded
from aspira.contracts.inference import PredictRequest, PredictResponse
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.frontends.offload import (
    LARGE_BYTES,
    LARGE_MESSAGE_BYTES,
    MANY_VALUES,
    count_bytes,
    on_thread,
)
from aspira.service.inference import InferenceService
from aspira.service.models import ModelsService
from aspira.wire.prediction import (
    decode_model_spec,
    decode_predict_request,
    encode_model_spec,
    encode_predict_response,
)
from aspira.wire.signature_def import encode_signature
from aspira.wire.tensor_proto import count_walked_values

_SERVICE = "/tensorflow.serving.PredictionService"
_SIGNATURE_FIELD = "signature_def"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


class PredictionServicer:
    """Decodes, calls the service once, encodes."""

    def __init__(
        self,
        inference: InferenceService,
        *,
        models: ModelsService,
        events: EventBus,
        clock: Clock,
        use_tensor_content: bool,
    ) -> None:
        from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

        self._inference = inference
        self._models = models
        self._events = events
        self._clock = clock
        self._use_tensor_content = use_tensor_content
        self._predict_classes = predict_pb2
        self._metadata_classes = get_model_metadata_pb2

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        return {
            f"{_SERVICE}/Predict": UnaryMethod(
                self._predict_classes.PredictRequest, self.predict, large_bytes=LARGE_MESSAGE_BYTES
            ),
            f"{_SERVICE}/GetModelMetadata": UnaryMethod(
                self._metadata_classes.GetModelMetadataRequest,
                self.get_model_metadata,
                is_question=True,
            ),
        }

    async def predict(self, call: UnaryCall) -> Message | bytes:
        """The Predict method."""
        started_s = self._clock.now()
        code, version, run_s = Code.INTERNAL, None, None
        try:
            if call.num_bytes < LARGE_BYTES or _is_soon_decoded(call):
                request = decode_predict_request(call.message, deadline=call.deadline)
            else:
                request = await _decode_on_thread(call)
            if call.priority:
                request = request._replace(priority=call.priority)
            response = await self._inference.predict(request)
            run_s = response.run_s
            answer = self._predict_classes.PredictResponse()
            if count_bytes(response.outputs.values()) < LARGE_BYTES:
                encode_predict_response(
                    response, into=answer, use_tensor_content=self._use_tensor_content
                )
            else:
                answer = await on_thread(partial(self._serialize, response, into=answer))
            code, version = Code.OK, response.servable_id.version
        except ServingError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = Code.CANCELLED
            raise
        finally:
            self._events.publish_request(
                RequestEnded(
                    call.message.model_spec.name,
                    version,
                    "predict",
                    "grpc",
                    code,
                    self._clock.now() - started_s,
                    run_s,
                )
            )
        return answer

    def _serialize(self, response: PredictResponse, *, into: Message) -> bytes:
        encode_predict_response(response, into=into, use_tensor_content=self._use_tensor_content)
        return bytes(into.SerializeToString())

    async def get_model_metadata(self, call: UnaryCall) -> Message:
        """The GetModelMetadata method. Questions about models are not counted as requests."""
        message = call.message
        if not message.metadata_field:
            raise InvalidArgument(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in message.metadata_field:
            if field != _SIGNATURE_FIELD:
                raise InvalidArgument(f"Metadata field {shorten(field)} is not supported")
        metadata = self._models.metadata(decode_model_spec(message))
        answer = self._metadata_classes.GetModelMetadataResponse()
        encode_model_spec(metadata.servable_id, into=answer.model_spec)
        signatures = self._metadata_classes.SignatureDefMap()
        for name, signature in metadata.signatures.items():
            encode_signature(signature, into=signatures.signature_def[name])
        answer.metadata[_SIGNATURE_FIELD].Pack(signatures)
        return answer


async def _decode_on_thread(call: UnaryCall) -> PredictRequest:
    return await on_thread(partial(decode_predict_request, call.message, deadline=call.deadline))


def _is_soon_decoded(call: UnaryCall) -> bool:
    """Whether a large message holds tensors that are copied whole, in less than a thread costs."""
    if call.num_bytes >= LARGE_MESSAGE_BYTES:
        return False
    return sum(map(count_walked_values, call.message.inputs.values())) < MANY_VALUES
