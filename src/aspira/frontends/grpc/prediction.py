"""Predict of `tensorflow.serving.PredictionService`."""

import asyncio
from functools import partial
from typing import Any

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code, ServingError
from aspira.contracts.events import EventBus, RequestEnded
from aspira.contracts.inference import PredictRequest
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod, read_message
from aspira.frontends.offload import (
    LARGE_BYTES,
    LARGE_MESSAGE_BYTES,
    MANY_VALUES,
    count_bytes,
    on_thread,
)
from aspira.service.inference import InferenceService
from aspira.wire.predict_templates import PredictTemplates
from aspira.wire.predict_writer import PredictResponseWriter
from aspira.wire.prediction import decode_predict_request
from aspira.wire.tensor_proto import count_walked_values

_PATH = "/tensorflow.serving.PredictionService/Predict"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


class PredictionServicer:
    """Decodes, calls the service once, encodes."""

    def __init__(
        self,
        inference: InferenceService,
        *,
        events: EventBus,
        clock: Clock,
        use_tensor_content: bool,
    ) -> None:
        from tensorflow_serving.apis import predict_pb2

        self._inference = inference
        self._events = events
        self._clock = clock
        self._request_class = predict_pb2.PredictRequest
        self._templates = PredictTemplates()
        self._writer = PredictResponseWriter(
            predict_pb2.PredictResponse, use_tensor_content=use_tensor_content
        )

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        return {_PATH: UnaryMethod(self._request_class, self.predict, takes_bytes=True)}

    async def predict(self, call: UnaryCall) -> bytes:
        """The Predict method."""
        request = self._templates.try_decode(
            call.message, deadline=call.deadline, priority=call.priority
        )
        message: Message = None
        if request is None:
            message = await read_message(
                self._request_class, payload=call.message, large_bytes=LARGE_MESSAGE_BYTES
            )
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
        if call.num_bytes < LARGE_BYTES:
            request = decode()
            self._templates.learn(call.message, request=request)
        elif _is_soon_decoded(message, num_bytes=call.num_bytes):
            request = decode()
        else:
            request = await on_thread(decode)
        return request._replace(priority=call.priority)


def _is_soon_decoded(message: Message, *, num_bytes: int) -> bool:
    """Whether a large message holds tensors that are copied whole, in less than a thread costs."""
    if num_bytes >= LARGE_MESSAGE_BYTES:
        return False
    return sum(map(count_walked_values, message.inputs.values())) < MANY_VALUES
