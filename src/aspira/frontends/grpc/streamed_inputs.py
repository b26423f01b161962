"""What a language model is asked by tensors with names, and what it answers by them.

The prompt is `text`, `input_ids`, or `messages`, which is JSON as OpenAI's API has it. Options are
tensors of one element by the names of that API, `stop` and `stop_token_ids` of any number.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import orjson

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.generation import Delta, GenerateRequest, Grammar
from aspira.contracts.tensors import Tensor, Tensors
from aspira.frontends.generation.fields import BadField, Fields
from aspira.frontends.generation.messages import decode_messages
from aspira.frontends.generation.options import (
    DEFAULT_MAX_TOKENS,
    decode_grammar,
    decode_options,
    decode_tokens,
)
from aspira.llm.model_text import ChatPrompt, Prompt, TextPrompt

_PROMPTS = ("text", "input_ids", "messages")
_LISTS = frozenset({"input_ids", "stop", "stop_token_ids"})
_JSON = frozenset({"messages", "logit_bias", "response_format"})
_OUTPUTS = (
    "text", "token_ids", "finish_reason", "logprobs", "prompt_tokens", "completion_tokens",
    "cached_tokens",
)  # fmt: skip


class StreamedOrder(NamedTuple):
    """What one request asks for. No `outputs` are all of them."""

    prompt: Prompt
    request: GenerateRequest
    grammar: Grammar | None
    outputs: tuple[str, ...]


def decode_streamed(
    inputs: Tensors, *, output_filter: Iterable[str], arrival: float
) -> tuple[StreamedOrder, Fields]:
    """The order, and the fields that it was read from.

    Raises:
        InvalidArgument: an input is missing, or wrong; an output is not known.
    """
    fields = Fields({name: _value_of(tensor, name=name) for name, tensor in inputs.items()})
    outputs = tuple(output_filter)
    for name in outputs:
        if name not in _OUTPUTS:
            raise InvalidArgument(
                f"There is no output {shorten(name)!r}; there are {', '.join(_OUTPUTS)}."
            )
    prompt = _decode_prompt(fields)
    is_chat = isinstance(prompt, ChatPrompt)
    num_logprobs = fields.integer("logprobs")
    if num_logprobs is None and "logprobs" in outputs:
        num_logprobs = 0
    request = decode_options(
        fields,
        arrival=arrival,
        max_tokens=fields.integer("max_tokens")
        if is_chat
        else fields.integer("max_tokens", default=DEFAULT_MAX_TOKENS),
        num_logprobs=num_logprobs,
    )
    if request.num_choices != 1:
        raise BadField("n must be 1 here: the answers of a stream are of one text.", param="n")
    return StreamedOrder(prompt, request, decode_grammar(fields), outputs), fields


def encode_delta(delta: Delta, *, order: StreamedOrder) -> Tensors:
    """What a text gained. `finish_reason` is empty until the end; the last one has the counts."""
    reason = delta.finish_reason
    found: dict[str, Tensor] = {
        "text": _texts(delta.text),
        "token_ids": np.array([delta.token_ids], np.int64).reshape(1, -1),
        "finish_reason": _texts("" if reason is None else reason.value),
    }
    if order.request.sampling.num_logprobs is not None:
        logprobs = [logprob.logprob for logprob in delta.logprobs]
        found["logprobs"] = np.array([logprobs], np.float32).reshape(1, -1)
    if delta.usage is not None:
        found |= {name: np.array([count]) for name, count in delta.usage._asdict().items()}
    if not order.outputs:
        return found
    return {name: tensor for name, tensor in found.items() if name in order.outputs}


def _decode_prompt(fields: Fields) -> Prompt:
    given = [name for name in _PROMPTS if fields.has(name)]
    if len(given) != 1:
        raise BadField(f"Give one of the inputs {', '.join(_PROMPTS)}.", param="text")
    adds_special = fields.flag("add_special_tokens", default=True)
    match given[0]:
        case "text":
            return TextPrompt(fields.text("text", default=""), adds_special)
        case "input_ids":
            return decode_tokens(fields.list("input_ids"), param="input_ids")
        case _:
            return ChatPrompt(decode_messages(fields.list("messages")))


def _value_of(tensor: Tensor, *, name: str) -> Any:
    values = [_as_text(value, name=name) for value in tensor.reshape(-1).tolist()]
    if name in _LISTS:
        if tensor.ndim > 1 and tensor.shape[0] != 1:
            raise BadField(f"{name} must be of one text, not of {tensor.shape[0]}.", param=name)
        return values
    if len(values) != 1:
        raise BadField(f"{name} must have one element, not {len(values)}.", param=name)
    if name not in _JSON:
        return values[0]
    try:
        return orjson.loads(values[0])
    except (orjson.JSONDecodeError, TypeError):
        raise BadField(f"{name} must be JSON.", param=name) from None


def _as_text(value: Any, *, name: str) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadField(f"{name} is not UTF-8 text.", param=name) from None


def _texts(text: str) -> Tensor:
    return np.array([text.encode()], np.object_)
