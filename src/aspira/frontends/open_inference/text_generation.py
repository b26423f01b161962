"""Generates text for an order: one answer, or one with each piece of text, as named outputs."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson

from aspira.contracts.generation import Delta, FinishReason, TokenLogprob
from aspira.contracts.tensors import Tensors
from aspira.frontends.generation.reading import read_streams
from aspira.frontends.open_inference.text_order import TEXT_OUTPUT, TextOrder
from aspira.service.generation import GenerationSession

TextAnswers = AsyncGenerator[Tensors | None, None]

# What Triton's vLLM backend says of a choice that goes on.
_NOT_ENDED = "None"


@dataclass(slots=True)
class _Choice:
    """What a choice gained since the last answer, and what holds from its begin."""

    text: str = ""
    num_tokens: int = 0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    cumulative_logprob: float = 0.0
    finish_reason: FinishReason | None = None

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.num_tokens += len(delta.token_ids)
        self.logprobs += delta.logprobs
        self.cumulative_logprob += sum(one.logprob for one in delta.logprobs)
        self.finish_reason = delta.finish_reason

    def after_answer(self) -> "_Choice":
        return _Choice(cumulative_logprob=self.cumulative_logprob, finish_reason=self.finish_reason)


@dataclass(frozen=True, slots=True)
class _Gain:
    """What an answer is made of."""

    choices: list[_Choice]
    num_prompt_tokens: int
    session: GenerationSession


async def generate_text(
    order: TextOrder, *, session: GenerationSession, idle_s: float
) -> TextAnswers:
    """Answers, by the names of outputs; None once queued, and after each `idle_s` without one.

    The reader closes it.

    Iterating raises:
        ServingError: before the first answer, or amid them.
    """
    model = session.model
    constraint = await model.compile(order.grammar) if order.grammar else None
    prompt = await model.encode(order.prompt)
    stream = session.start(prompt, request=order.request, make_constraint=constraint)
    yield None
    beginning = order.prompt.text if order.begins_with_prompt else ""
    choices = [_Choice(beginning) for _ in range(order.request.num_choices)]
    async with aclosing(read_streams([stream], idle_s=idle_s)) as arrivals:
        async for arrival in arrivals:
            if arrival is None:
                yield None
                continue
            choices[arrival.delta.choice].add(arrival.delta)
            if order.is_streamed:
                yield _encode(order, gain=_Gain(choices, len(prompt), session))
                choices = [choice.after_answer() for choice in choices]
    if not order.is_streamed:
        yield _encode(order, gain=_Gain(choices, len(prompt), session))


def _encode(order: TextOrder, *, gain: _Gain) -> Tensors:
    return {name: _ENCODERS[name](gain) for name in order.outputs}


def _texts(values: list[str]) -> Any:
    tensor = np.empty(len(values), np.object_)
    tensor[:] = [value.encode() for value in values]
    return tensor


def _encode_reasons(gain: _Gain) -> Any:
    reasons = [choice.finish_reason for choice in gain.choices]
    return _texts([_NOT_ENDED if reason is None else reason.value for reason in reasons])


def _encode_cumulative(gain: _Gain) -> Any:
    return np.array([choice.cumulative_logprob for choice in gain.choices], np.float32)


def _encode_logprobs(gain: _Gain) -> Any:
    describe = gain.session.model.describe_token

    def entry(token_id: int, *, logprob: float, rank: int | None) -> dict[str, Any]:
        return {"logprob": logprob, "rank": rank, "decoded_token": describe(token_id)[0]}

    def entries(one: TokenLogprob) -> dict[str, Any]:
        found = {
            str(token_id): entry(token_id, logprob=logprob, rank=rank)
            for rank, (token_id, logprob) in enumerate(one.alternatives, start=1)
        }
        found.setdefault(str(one.token_id), entry(one.token_id, logprob=one.logprob, rank=None))
        return found

    return _texts(
        [
            orjson.dumps([entries(one) for one in choice.logprobs]).decode()
            for choice in gain.choices
        ]
    )


def _encode_num_input(gain: _Gain) -> Any:
    return np.array([gain.num_prompt_tokens], np.uint32)


def _encode_num_output(gain: _Gain) -> Any:
    return np.array([choice.num_tokens for choice in gain.choices], np.uint32)


_ENCODERS: Mapping[str, Callable[[_Gain], Any]] = MappingProxyType(
    {
        TEXT_OUTPUT: lambda gain: _texts([choice.text for choice in gain.choices]),
        "finish_reason": _encode_reasons,
        "cumulative_logprob": _encode_cumulative,
        "logprobs": _encode_logprobs,
        "num_input_tokens": _encode_num_input,
        "num_output_tokens": _encode_num_output,
    }
)
