"""`tensorflow.serving.PredictionService`: predictions and model metadata."""

import asyncio
from functools import partial
from typing import Any

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code, InvalidArgument, ServingError, shorten
from aspira.contracts.events import EventBus, RequestEnded
from aspira.contracts.inference import PredictRequest
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod, read_message
from aspira.frontends.offload import LARGE_BYTES, count_bytes, on_thread
from aspira.service.inference import InferenceService
from aspira.service.models import ModelsService
from aspira.wire.predict_templates import PredictTemplates
from aspira.wire.predict_writer import PredictResponseWriter
from aspira.wire.prediction import decode_model_spec, decode_predict_request, encode_model_spec
from aspira.wire.signature_def import encode_signature

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
        self._request_class = predict_pb2.PredictRequest
        self._templates = PredictTemplates()
        self._writer = PredictResponseWriter(
            predict_pb2.PredictResponse, use_tensor_content=use_tensor_content
        )
        self._metadata_classes = get_model_metadata_pb2

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        return {
            f"{_SERVICE}/Predict": UnaryMethod(self._request_class, self.predict, takes_bytes=True),
            f"{_SERVICE}/GetModelMetadata": UnaryMethod(
                self._metadata_classes.GetModelMetadataRequest,
                self.get_model_metadata,
                is_question=True,
            ),
        }

    async def predict(self, call: UnaryCall) -> bytes:
        """The Predict method."""
        request = self._templates.try_decode(
            call.message, deadline=call.deadline, priority=call.priority
        )
        message: Message = None
        if request is None:
            message = await read_message(self._request_class, payload=call.message)
        started_s = self._clock.now()
        code, version, run_s = Code.INTERNAL, None, None
        try:
            if request is None:
                request = await self._decode(message, call=call)
            response = await self._inference.predict(request)
            run_s = response.run_s
            if count_bytes(response.outputs.values()) < LARGE_BYTES:
                answer = self._writer.serialize(response)
            else:
                answer = await on_thread(partial(self._writer.serialize, response))
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
                    message.model_spec.name if request is None else request.spec.name,
                    version,
                    "predict",
                    "grpc",
                    code,
                    self._clock.now() - started_s,
                    run_s,
                )
            )
        return answer

    async def _decode(self, message: Message, *, call: UnaryCall) -> PredictRequest:
        decode = partial(decode_predict_request, message, deadline=call.deadline)
        if call.num_bytes >= LARGE_BYTES:
            request = await on_thread(decode)
        else:
            request = decode()
            self._templates.learn(call.message, request=request)
        return request._replace(priority=call.priority)

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
