"""The endpoints by path: a body decoded, the service asked, an answer sent."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aspira.contracts.identity import ModelSpec
from aspira.frontends.counting import Outcome
from aspira.frontends.generation.asgi import CHAT_API
from aspira.frontends.generation.fields import Fields, UnknownFields
from aspira.frontends.generation.responder import Responder
from aspira.frontends.openai.choices import ChatFormat, CompletionFormat, MakeFormat
from aspira.frontends.openai.embeddings import EmbeddingAnswers
from aspira.frontends.openai.generating import GenerationAnswer
from aspira.frontends.openai.requests import GenerationOrder, decode_chat, decode_completion
from aspira.frontends.openai.tokens import (
    decode_detokenize,
    decode_tokenize,
    detokenize,
    tokenize,
)
from aspira.service.generation import GenerationService, GenerationSession


@dataclass(frozen=True, slots=True)
class Call:
    """One request, to be answered by its endpoint."""

    fields: Fields
    arrival: float
    responder: Responder
    outcome: Outcome


class Endpoints:
    """Each raises ServingError, before or amid its answer. Event loop only."""

    def __init__(
        self,
        generation: GenerationService,
        *,
        embedding: EmbeddingAnswers,
        keep_alive_s: float,
    ) -> None:
        self._generation = generation
        self._embedding = embedding
        self._keep_alive_s = keep_alive_s
        self._unknown = UnknownFields()

    async def chat(self, call: Call) -> None:
        """Chat messages, and the assistant's next one."""
        order = decode_chat(call.fields, arrival=call.arrival)
        await self._generate(order, call=call, make_format=ChatFormat)

    async def complete(self, call: Call) -> None:
        """A text, and how it goes on."""
        order = decode_completion(call.fields, arrival=call.arrival)
        await self._generate(order, call=call, make_format=CompletionFormat)

    async def embed(self, call: Call) -> None:
        """Texts, and a vector of each."""
        body = await self._embedding.answer(call.fields, outcome=call.outcome)
        self._unknown.log(call.fields)
        await call.responder.answer(body)

    async def tokenize(self, call: Call) -> None:
        """Text or messages to token ids."""
        spec, prompt = decode_tokenize(call.fields)
        async with self._open(spec, call=call) as session:
            await call.responder.answer(await tokenize(session, prompt=prompt))

    async def detokenize(self, call: Call) -> None:
        """Token ids to text."""
        spec, tokens = decode_detokenize(call.fields)
        async with self._open(spec, call=call) as session:
            await call.responder.answer(await detokenize(session, tokens=tokens))

    async def _generate(
        self,
        order: GenerationOrder,
        *,
        call: Call,
        make_format: MakeFormat,
    ) -> None:
        self._unknown.log(call.fields)
        async with self._open(order.spec, call=call) as session:
            answer = GenerationAnswer(
                order,
                session=session,
                choices=make_format(session.model, order=order),
                responder=call.responder,
                keep_alive_s=self._keep_alive_s,
            )
            await answer.send()

    def _open(self, spec: ModelSpec, *, call: Call) -> GenerationSession:
        call.outcome.model_name = spec.name
        session = self._generation.open(spec)
        call.outcome.version = session.servable_id.version
        return session


Answer = Callable[[Endpoints, Call], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint, and what metrics call it."""

    api: str
    answer: Answer


ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        "/v1/chat/completions": Route(CHAT_API, Endpoints.chat),
        "/v1/completions": Route("completions", Endpoints.complete),
        "/v1/embeddings": Route("embeddings", Endpoints.embed),
        "/tokenize": Route("tokenize", Endpoints.tokenize),
        "/detokenize": Route("detokenize", Endpoints.detokenize),
    }
)
"""By path; all are asked by POST."""

PATHS = (*ROUTES, *(f"{path}/" for path in ROUTES))
"""A slash at the end is no other path."""
