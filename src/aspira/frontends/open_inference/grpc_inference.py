"""`ModelInfer` and Triton's `ModelStreamInfer` of `inference.GRPCInferenceService`.

A stream takes requests while earlier ones are answered; answers of several requests mix, told apart
by their ids. An error concerns its request alone and is an answer, the stream goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from aspira.contracts.clock import Clock
from aspira.contracts.errors import ServingError
from aspira.frontends.counting import Outcome, RequestCounter
from aspira.frontends.grpc.methods import (
    MAX_MESSAGE_BYTES,
    Method,
    StreamMethod,
    UnaryCall,
    UnaryMethod,
)
from aspira.frontends.offload import LARGE_BYTES, count_bytes, on_thread
from aspira.frontends.open_inference.data_plane import DataPlane, InferAnswer, InferRequest
from aspira.frontends.open_inference.infer_messages import (
    decode_infer_request,
    decode_parameters,
    encode_infer_response,
)
from aspira.service.drain import RequestGate

SERVICE = "/inference.GRPCInferenceService"

_MAX_AT_ONCE = 256
_MAX_UNSENT = 16
_WANTS_END = "triton_enable_empty_final_response"
_IS_END = "triton_final_response"

# Message classes are generated, hence Any.
Message = Any


class _StreamEnd(NamedTuple):
    """There are no more answers, and the reason if it is an error."""

    error: BaseException | None = None


_Answers = asyncio.Queue[Message | _StreamEnd]


class InferenceServicer:
    """Decodes, asks the data plane once, encodes. `classes` are those of the messages."""

    def __init__(
        self,
        plane: DataPlane,
        *,
        classes: Mapping[str, Any],
        counter: RequestCounter,
        gate: RequestGate,
        clock: Clock,
    ) -> None:
        self._plane = plane
        self._request_class = classes["ModelInferRequest"]
        self._response_class = classes["ModelInferResponse"]
        self._stream_class = classes["ModelStreamInferResponse"]
        self._counter = counter
        self._gate = gate
        self._clock = clock

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        return {
            f"{SERVICE}/ModelInfer": UnaryMethod(self._request_class, self.model_infer),
            f"{SERVICE}/ModelStreamInfer": StreamMethod(
                self._request_class, self.model_stream_infer, MAX_MESSAGE_BYTES
            ),
        }

    async def model_infer(self, call: UnaryCall) -> Message:
        """The ModelInfer method: one answer, whole."""
        message = call.message
        with self._counter.count("infer", model_name=message.model_name) as outcome:
            request = await self._decode(message, num_bytes=call.num_bytes)
            answer = await self._plane.infer(
                request._replace(deadline=call.deadline, priority=call.priority)
            )
            outcome.version = answer.servable_id.version
            return await self._encode(answer, request_id=message.id)

    async def model_stream_infer(
        self, requests: AsyncIterator[Message]
    ) -> AsyncGenerator[Message, None]:
        """The ModelStreamInfer method: as many answers to each request as come."""
        answers: _Answers = asyncio.Queue(_MAX_UNSENT)
        answering = asyncio.create_task(self._answer_all(requests, answers=answers))
        try:
            while not isinstance(answer := await answers.get(), _StreamEnd):
                yield answer
            if answer.error is not None:
                raise answer.error
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer_all(self, requests: AsyncIterator[Message], *, answers: _Answers) -> None:
        """Until the requests have ended and all are answered, or one side is gone."""
        slots = asyncio.Semaphore(_MAX_AT_ONCE)
        end = _StreamEnd()
        try:
            async with asyncio.TaskGroup() as group:
                async for request in requests:
                    await slots.acquire()
                    task = group.create_task(self._answer(request, answers=answers))
                    task.add_done_callback(lambda _: slots.release())
        except* Exception as caught:  # noqa: BLE001 - whatever it is, the stream ends with it
            end = _StreamEnd(caught.exceptions[0])
        await answers.put(end)

    async def _answer(self, message: Message, *, answers: _Answers) -> None:
        """One request of a stream."""
        try:
            with (
                self._gate,
                self._counter.count("infer_stream", model_name=message.model_name) as outcome,
            ):
                await self._send_answers(message, answers=answers, outcome=outcome)
        except ServingError as error:
            failed = self._stream_class(error_message=error.message)
            failed.infer_response.id = message.id
            await answers.put(failed)

    async def _send_answers(self, message: Message, *, answers: _Answers, outcome: Outcome) -> None:
        wants_end = decode_parameters(message.parameters).get(_WANTS_END) is True
        request = await self._decode(message, num_bytes=message.ByteSize())
        async with aclosing(self._plane.infer_stream(request)) as found:
            async for answer in found:
                if answer is None:
                    continue
                outcome.version = answer.servable_id.version
                response = await self._encode(answer, request_id=message.id)
                if wants_end:
                    _say_whether_last(response, is_last=False)
                await answers.put(self._stream_class(infer_response=response))
        if wants_end:
            last = self._response_class(model_name=message.model_name, id=message.id)
            _say_whether_last(last, is_last=True)
            await answers.put(self._stream_class(infer_response=last))

    async def _decode(self, message: Message, *, num_bytes: int) -> InferRequest:
        decode = partial(decode_infer_request, message, arrival=self._clock.now())
        return decode() if num_bytes < LARGE_BYTES else await on_thread(decode)

    async def _encode(self, answer: InferAnswer, *, request_id: str) -> Message:
        response = self._response_class()
        encode = partial(encode_infer_response, answer, request_id=request_id, into=response)
        if count_bytes(answer.outputs.values()) < LARGE_BYTES:
            encode()
        else:
            await on_thread(encode)
        return response


def _say_whether_last(response: Message, *, is_last: bool) -> None:
    entry = response.parameters.add(key=_IS_END)
    entry.value.bool_param = is_last
