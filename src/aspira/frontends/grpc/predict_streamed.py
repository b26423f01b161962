"""`PredictionService.PredictStreamed`, for which TensorFlow Serving has messages and no service.

One request a stream, as `predict.proto` has it for servers of its kind: perhaps after a handshake,
which has no inputs, and perhaps cancelled by a further message. A language model answers with its
text as it comes, any other model once.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from aspira.contracts.errors import Cancelled, InvalidArgument, ServingError, Unimplemented
from aspira.contracts.inference import PredictRequest, PredictResponse
from aspira.frontends.counting import RequestCounter
from aspira.frontends.generation.fields import UnknownFields
from aspira.frontends.grpc.methods import MAX_MESSAGE_BYTES, Method, StreamMethod
from aspira.frontends.grpc.streamed_inputs import decode_streamed, encode_delta
from aspira.llm.streams import TokenStream, join_deltas
from aspira.service.drain import RequestGate
from aspira.service.generation import GenerationService, GenerationSession
from aspira.service.inference import InferenceService
from aspira.wire.prediction import (
    decode_model_spec,
    decode_predict_request,
    encode_predict_response,
)

_PATH = "/tensorflow.serving.PredictionService/PredictStreamed"

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any
Responses = AsyncGenerator[PredictResponse, None]


class PredictStreamedServicer:
    """Decodes, asks a service once, encodes what comes."""

    def __init__(
        self,
        inference: InferenceService,
        *,
        generation: GenerationService,
        counter: RequestCounter,
        gate: RequestGate,
        use_tensor_content: bool,
    ) -> None:
        from tensorflow_serving.apis import predict_pb2

        self._inference = inference
        self._generation = generation
        self._counter = counter
        self._gate = gate
        self._use_tensor_content = use_tensor_content
        self._classes = predict_pb2
        self._states = predict_pb2.PredictStreamedOptions
        self._unknown = UnknownFields()

    def methods(self) -> dict[str, Method]:
        """Its method by path."""
        request_class = self._classes.PredictRequest
        return {_PATH: StreamMethod(request_class, self.predict_streamed, MAX_MESSAGE_BYTES)}

    async def predict_streamed(
        self, requests: AsyncIterator[Message]
    ) -> AsyncGenerator[Message, None]:
        """The PredictStreamed method."""
        # A stream without a request, a handshake perhaps, must not hold up the server's shutdown.
        message = await self._read_request(requests)
        with (
            self._gate,
            self._counter.count("predict_streamed", model_name=message.model_spec.name) as outcome,
        ):
            async with aclosing(self._respond(message, requests=requests)) as responses:
                async for response in responses:
                    outcome.version = response.servable_id.version
                    yield self._encode(response)

    async def _read_request(self, requests: AsyncIterator[Message]) -> Message:
        async for message in requests:
            state = message.predict_streamed_options.request_state
            if state == self._states.CANCEL:
                raise _cancelled()
            if state == self._states.SPLIT:
                raise Unimplemented(
                    "A request that is split is not supported; send its inputs in one message, "
                    "with the state NONE or END_SPLIT"
                )
            if message.inputs:
                return message
            # A handshake: it asks whether the model would take a request, and has no answer.
            with self._inference.lease(decode_model_spec(message)):
                pass
        raise InvalidArgument("The stream ended without a request that has inputs")

    async def _respond(self, message: Message, *, requests: AsyncIterator[Message]) -> Responses:
        request = decode_predict_request(message, deadline=None)
        session = self._generation.try_open(request.spec)
        if session is None:
            yield await self._inference.predict(request)
            return
        async with session:
            watching = asyncio.create_task(self._watch(requests, session=session))
            try:
                is_whole = message.predict_streamed_options.return_single_response
                generating = self._generate(request, session=session, is_whole=is_whole)
                async with aclosing(generating) as responses:
                    async for response in responses:
                        yield response
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, requests: AsyncIterator[Message], *, session: GenerationSession) -> None:
        """What follows the request can only end it."""
        try:
            async for message in requests:
                if message.predict_streamed_options.request_state == self._states.CANCEL:
                    raise _cancelled()
                raise InvalidArgument(
                    "A stream takes one request; open another stream for the next one"
                )
        except ServingError as error:
            session.fail(error)

    async def _generate(
        self, request: PredictRequest, *, session: GenerationSession, is_whole: bool
    ) -> Responses:
        order, fields = decode_streamed(
            request.inputs, output_filter=request.output_filter, arrival=self._inference.clock.now()
        )
        self._unknown.log(fields)
        model = session.model
        constraint = await model.compile(order.grammar) if order.grammar else None
        prompt = await model.encode(order.prompt)
        stream = session.start(prompt, request=order.request, make_constraint=constraint)
        async for delta in _whole(stream) if is_whole else stream:
            outputs = encode_delta(delta, order=order)
            yield PredictResponse(outputs, session.servable_id, request.spec.signature_name)

    def _encode(self, response: PredictResponse) -> Message:
        answer = self._classes.PredictResponse()
        encode_predict_response(response, into=answer, use_tensor_content=self._use_tensor_content)
        return answer


async def _whole(stream: TokenStream) -> AsyncGenerator[Any, None]:
    yield join_deltas([delta async for delta in stream])


def _cancelled() -> Cancelled:
    return Cancelled("The client cancelled the stream")
