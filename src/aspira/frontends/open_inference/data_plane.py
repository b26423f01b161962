"""Where every request of the Open Inference Protocol ends, whichever transport brought it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from aspira.contracts.errors import Internal
from aspira.contracts.identity import ModelSpec, ServableId
from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import Tensors
from aspira.frontends.generation.fields import UnknownFields
from aspira.frontends.open_inference.text_generation import generate_text
from aspira.frontends.open_inference.text_order import (
    TextOrder,
    decode_text_order,
    merge_values,
    values_of,
)
from aspira.service.generation import GenerationService, GenerationSession
from aspira.service.inference import InferenceService

_SIGNATURE_PARAMETER = "signature_name"


class InferRequest(NamedTuple):
    """Named tensors for a model. No `outputs` are all of them.

    Times are seconds of the server's clock; deadline and priority are those of `PredictRequest`.
    """

    spec: ModelSpec
    inputs: Tensors
    parameters: Mapping[str, Any]
    outputs: tuple[str, ...]
    arrival: float
    deadline: float | None = None
    priority: int = 0


class TextRequest(NamedTuple):
    """A text to continue: values by name, some of which may be parameters."""

    spec: ModelSpec
    values: Mapping[str, Any]
    parameters: Mapping[str, Any]
    outputs: tuple[str, ...]
    arrival: float


class InferAnswer(NamedTuple):
    """Outputs, and who answered."""

    servable_id: ServableId
    outputs: Tensors


InferAnswers = AsyncGenerator[InferAnswer | None, None]


class DataPlane:
    """Event loop only. Readers close what streams. All of it raises ServingError.

    A stream says that it is there when nothing came for `keep_alive_s`.
    """

    def __init__(
        self,
        inference: InferenceService,
        *,
        generation: GenerationService,
        keep_alive_s: float,
    ) -> None:
        self._inference = inference
        self._generation = generation
        self._keep_alive_s = keep_alive_s
        self._unknown = UnknownFields()

    async def infer(self, request: InferRequest) -> InferAnswer:
        """One answer, whole."""
        session = self._generation.try_open(request.spec)
        if session is None:
            return await self._predict(request)
        async with session:
            values = values_of(request.inputs)
            return await self._continue(_text_request(request, values=values), session=session)

    async def infer_stream(self, request: InferRequest) -> InferAnswers:
        """As many answers as come; None now and then while there is none."""
        session = self._generation.try_open(request.spec)
        if session is None:
            yield await self._predict(request)
            return
        async with session:
            text_request = _text_request(request, values=values_of(request.inputs))
            order = self._decode(text_request, is_streamed=False)
            async with aclosing(self._answers(order, session=session)) as answers:
                async for answer in answers:
                    yield answer

    async def generate(self, request: TextRequest) -> InferAnswer:
        """A text, whole."""
        async with self._generation.open(request.spec) as session:
            return await self._continue(request, session=session)

    async def generate_stream(self, request: TextRequest) -> InferAnswers:
        """A text as it comes; None now and then while nothing does."""
        async with self._generation.open(request.spec) as session:
            order = self._decode(request, is_streamed=True)
            async with aclosing(self._answers(order, session=session)) as answers:
                async for answer in answers:
                    yield answer

    async def _continue(self, request: TextRequest, *, session: GenerationSession) -> InferAnswer:
        whole = request._replace(values={**request.values, "stream": False})
        order = self._decode(whole, is_streamed=False)
        async with aclosing(self._answers(order, session=session)) as answers:
            async for answer in answers:
                if answer is not None:
                    return answer
        raise Internal("The generation ended without an answer")

    def _decode(self, request: TextRequest, *, is_streamed: bool) -> TextOrder:
        fields = merge_values(request.parameters, values=request.values)
        order = decode_text_order(
            fields, arrival=request.arrival, is_streamed=is_streamed, outputs=request.outputs
        )
        self._unknown.log(fields)
        return order

    async def _answers(self, order: TextOrder, *, session: GenerationSession) -> InferAnswers:
        idle_s = self._keep_alive_s
        async with aclosing(generate_text(order, session=session, idle_s=idle_s)) as answers:
            async for outputs in answers:
                yield None if outputs is None else InferAnswer(session.servable_id, outputs)

    async def _predict(self, request: InferRequest) -> InferAnswer:
        signature_name = str(request.parameters.get(_SIGNATURE_PARAMETER, ""))
        response = await self._inference.predict(
            PredictRequest(
                request.spec._replace(signature_name=signature_name),
                request.inputs,
                request.outputs,
                deadline=request.deadline,
                priority=request.priority,
            )
        )
        return InferAnswer(response.servable_id, response.outputs)


def _text_request(request: InferRequest, *, values: Mapping[str, Any]) -> TextRequest:
    return TextRequest(request.spec, values, request.parameters, request.outputs, request.arrival)
