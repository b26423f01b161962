"""`tensorflow.serving.PredictionService`: the methods that take examples."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code, ServingError
from aspira.contracts.events import EventBus, RequestEnded
from aspira.contracts.examples import ExamplesResponse, ExamplesResult
from aspira.frontends.grpc.methods import Method, UnaryCall, UnaryMethod
from aspira.frontends.offload import LARGE_EXAMPLES_BYTES, count_bytes, on_thread
from aspira.service.examples import classify, multi_inference, regress
from aspira.service.inference import InferenceService
from aspira.wire.examples import (
    decode_examples_request,
    decode_multi_inference_request,
    encode_examples_response,
    encode_multi_inference_response,
)

_SERVICE = "/tensorflow.serving.PredictionService"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

RequestT_co = TypeVar("RequestT_co", covariant=True)


class _Answer(NamedTuple):
    """What goes out, and what there is to tell of it; MultiInference also counts its examples."""

    message: Message | bytes
    response: ExamplesResponse[ExamplesResult]
    num_examples: int = 0


class ExamplesServicer:
    """Decodes, calls the service once, encodes."""

    def __init__(self, inference: InferenceService, *, events: EventBus, clock: Clock) -> None:
        from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

        self._inference = inference
        self._events = events
        self._clock = clock
        self._classification_classes = classification_pb2
        self._regression_classes = regression_pb2
        self._inference_classes = inference_pb2

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        return {
            f"{_SERVICE}/Classify": UnaryMethod(
                self._classification_classes.ClassificationRequest, self.classify
            ),
            f"{_SERVICE}/Regress": UnaryMethod(
                self._regression_classes.RegressionRequest, self.regress
            ),
            f"{_SERVICE}/MultiInference": UnaryMethod(
                self._inference_classes.MultiInferenceRequest, self.multi_inference
            ),
        }

    async def classify(self, call: UnaryCall) -> Message | bytes:
        """The Classify method."""
        name = call.message.model_spec.name
        return await self._report(self._classify, call=call, model_name=name, api="classify")

    async def regress(self, call: UnaryCall) -> Message | bytes:
        """The Regress method."""
        name = call.message.model_spec.name
        return await self._report(self._regress, call=call, model_name=name, api="regress")

    async def multi_inference(self, call: UnaryCall) -> Message | bytes:
        """The MultiInference method."""
        tasks = call.message.tasks
        name = tasks[0].model_spec.name if tasks else ""
        return await self._report(
            self._multi_inference, call=call, model_name=name, api="multi_inference"
        )

    async def _classify(self, call: UnaryCall) -> _Answer:
        request = await _decode(call, decode=decode_examples_request)
        response = await classify(self._inference, request=request)
        answer = self._classification_classes.ClassificationResponse()
        return await _fill_one(answer, response=response)

    async def _regress(self, call: UnaryCall) -> _Answer:
        request = await _decode(call, decode=decode_examples_request)
        response = await regress(self._inference, request=request)
        answer = self._regression_classes.RegressionResponse()
        return await _fill_one(answer, response=response)

    async def _multi_inference(self, call: UnaryCall) -> _Answer:
        request = await _decode(call, decode=decode_multi_inference_request)
        responses = await multi_inference(self._inference, request=request)
        answer = self._inference_classes.MultiInferenceResponse()
        fill = partial(encode_multi_inference_response, responses, into=answer)
        num_bytes = sum(count_bytes(response.result) for response in responses)
        filled = await _fill(answer, fill=fill, num_bytes=num_bytes)
        return _Answer(filled, responses[0], len(request.examples))

    async def _report(
        self,
        answer: Callable[[UnaryCall], Awaitable[_Answer]],
        *,
        call: UnaryCall,
        model_name: str,
        api: str,
    ) -> Message | bytes:
        """Answer, and tell how it ended."""
        started_s = self._clock.now()
        code, version, run_s, num_examples = Code.INTERNAL, None, None, 0
        try:
            message, response, num_examples = await answer(call)
            code, version, run_s = Code.OK, response.servable_id.version, response.run_s
        except ServingError as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = Code.CANCELLED
            raise
        finally:
            duration_s = self._clock.now() - started_s
            self._events.publish_request(
                RequestEnded(
                    model_name, version, api, "grpc", code, duration_s, run_s, num_examples
                )
            )
        return message


class _Decode(Protocol[RequestT_co]):
    def __call__(
        self, message: Message, *, deadline: float | None, priority: int = 0
    ) -> RequestT_co: ...


async def _decode(call: UnaryCall, *, decode: _Decode[RequestT_co]) -> RequestT_co:
    decode_call = partial(decode, call.message, deadline=call.deadline, priority=call.priority)
    if call.num_bytes < LARGE_EXAMPLES_BYTES:
        return decode_call()
    return await on_thread(decode_call)


async def _fill_one(answer: Message, *, response: ExamplesResponse[ExamplesResult]) -> _Answer:
    fill = partial(encode_examples_response, response, into=answer)
    filled = await _fill(answer, fill=fill, num_bytes=count_bytes(response.result))
    return _Answer(filled, response)


async def _fill(answer: Message, *, fill: Callable[[], None], num_bytes: int) -> Message | bytes:
    """The answer filled from results of `num_bytes`; serialized at once if that takes long."""
    if num_bytes < LARGE_EXAMPLES_BYTES:
        fill()
        return answer
    return await on_thread(partial(_fill_and_serialize, answer, fill=fill))


def _fill_and_serialize(answer: Message, *, fill: Callable[[], None]) -> bytes:
    fill()
    return bytes(answer.SerializeToString())
