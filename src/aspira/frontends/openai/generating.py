"""Answers a generation request, whole or as events, in the format of either API."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import orjson

from aspira.contracts.generation import Usage
from aspira.frontends.generation.reading import Arrival, read_streams
from aspira.frontends.generation.responder import Responder
from aspira.frontends.openai.choices import Choice, ChoiceFormat, WholeChoice
from aspira.frontends.openai.requests import GenerationOrder
from aspira.llm.model_text import TextPrompt
from aspira.llm.streams import TokenStream
from aspira.service.generation import GenerationSession


class GenerationAnswer:
    """The answer to one order, by a session that somebody else closes."""

    def __init__(
        self,
        order: GenerationOrder,
        *,
        session: GenerationSession,
        choices: ChoiceFormat,
        responder: Responder,
        keep_alive_s: float,
    ) -> None:
        self._order = order
        self._session = session
        self._choices = choices
        self._responder = responder
        self._keep_alive_s = keep_alive_s
        self._usages: list[Usage] = []

    async def send(self) -> None:
        """Generate, and send what comes.

        Raises:
            ServingError: before anything was sent, or amid the stream.
        """
        prefixes = await self._prefixes()
        streams = await self._start()
        if self._order.is_streamed:
            await self._send_events(streams, prefixes=prefixes)
        else:
            await self._send_whole(streams, prefixes=prefixes)

    async def _prefixes(self) -> list[str]:
        """What each prompt's choices begin with."""
        if not self._order.is_echoed:
            return [""] * len(self._order.prompts)
        return [
            prompt.text
            if isinstance(prompt, TextPrompt)
            else await self._session.model.decode(await self._session.model.encode(prompt))
            for prompt in self._order.prompts
        ]

    async def _start(self) -> list[TokenStream]:
        model, order = self._session.model, self._order
        constraint = await model.compile(order.grammar) if order.grammar else None
        prompts = [await model.encode(prompt) for prompt in order.prompts]
        self._choices.begin(prompts)
        return [
            self._session.start(prompt, request=order.request, make_constraint=constraint)
            for prompt in prompts
        ]

    async def _send_whole(self, streams: Sequence[TokenStream], *, prefixes: list[str]) -> None:
        num_choices = self._order.request.num_choices
        found = [
            WholeChoice(number, prefixes[number // num_choices])
            for number in range(len(streams) * num_choices)
        ]
        async with aclosing(read_streams(streams, idle_s=self._keep_alive_s)) as arrivals:
            async for arrival in arrivals:
                if arrival is not None:
                    found[self._take(arrival)].add(arrival.delta)
        body = self._envelope(self._choices.whole_object)
        body["choices"] = [self._choices.whole(choice) for choice in found]
        body["usage"] = self._encode_usage()
        await self._responder.answer(orjson.dumps(body))

    async def _send_events(self, streams: Sequence[TokenStream], *, prefixes: list[str]) -> None:
        responder, num_choices = self._responder, self._order.request.num_choices
        await responder.start_events()
        for number in range(len(streams) * num_choices):
            opening = self._choices.opening(number, prefix=prefixes[number // num_choices])
            if opening is not None:
                await self._send_piece(opening)
        async with aclosing(read_streams(streams, idle_s=self._keep_alive_s)) as arrivals:
            async for arrival in arrivals:
                if arrival is None:
                    await responder.keep_alive()
                    continue
                for piece in self._choices.pieces(self._take(arrival), delta=arrival.delta):
                    await self._send_piece(piece)
        if self._order.has_usage:
            last = self._envelope(self._choices.piece_object)
            last |= {"choices": [], "usage": self._encode_usage()}
            await responder.send_event(orjson.dumps(last))
        await responder.end_events()

    async def _send_piece(self, piece: Choice) -> None:
        body = self._envelope(self._choices.piece_object)
        body["choices"] = [piece]
        if self._order.has_usage:
            body["usage"] = None
        await self._responder.send_event(orjson.dumps(body))

    def _take(self, arrival: Arrival) -> int:
        """Note what it says of usage; returns the choice's number in the answer."""
        if arrival.delta.usage is not None:
            self._usages.append(arrival.delta.usage)
        return arrival.stream * self._order.request.num_choices + arrival.delta.choice

    def _envelope(self, kind: str) -> dict[str, Any]:
        servable_id = self._session.servable_id
        return {
            "id": f"{self._choices.id_prefix}{self._responder.request_id}",
            "object": kind,
            "created": self._responder.created,
            "model": self._order.model,
            # Says which version answered, which clients keep beside the text.
            "system_fingerprint": f"{servable_id.name}@{servable_id.version}",
        }

    def _encode_usage(self) -> dict[str, Any]:
        prompt = sum(usage.prompt_tokens for usage in self._usages)
        completion = sum(usage.completion_tokens for usage in self._usages)
        cached = sum(usage.cached_tokens for usage in self._usages)
        reasoning = self._choices.num_reasoning_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
