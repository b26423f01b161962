"""Bodies of generation requests to what the service is asked for."""

import re
from dataclasses import dataclass, replace
from typing import Any

from aspira.contracts.generation import GenerateRequest, Grammar
from aspira.contracts.identity import MAX_VERSION, ModelName, ModelSpec, Version, VersionLabel
from aspira.frontends.generation.fields import BadField, Fields
from aspira.frontends.generation.messages import decode_messages
from aspira.frontends.generation.options import (
    DEFAULT_MAX_TOKENS,
    decode_grammar,
    decode_options,
    decode_tokens,
)
from aspira.frontends.openai.tool_choice import decode_tool_choice
from aspira.llm.model_text import ChatPrompt, Prompt, TextPrompt

_MODEL = re.compile(
    r"(?P<name>.+?)(?:/versions/(?P<version>[0-9]{1,19})|/labels/(?P<label>[^/]+))?", re.DOTALL
)
_MAX_PROMPTS = 128
# Known to OpenAI's clients, and without effect on what is generated here.
_WITHOUT_EFFECT = (
    "user", "metadata", "store", "service_tier", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "verbosity", "prediction",
    "parallel_tool_calls", "modalities", "stream_options",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GenerationOrder:
    """What one body asks for."""

    model: str
    """As the client wrote it."""

    spec: ModelSpec
    prompts: tuple[Prompt, ...]
    request: GenerateRequest
    """All of it but the prompt."""

    grammar: Grammar | None
    is_streamed: bool
    has_usage: bool
    """A stream ends with a chunk about usage."""

    is_echoed: bool = False
    """The answer begins with the prompt."""

    tool_names: frozenset[str] = frozenset()
    """Tools whose calls are to be taken out of the text."""

    has_reasoning: bool = True
    """Of a chat: the answer tells what the model thought, if it is one that does."""

    @property
    def has_logprobs(self) -> bool:
        return self.request.sampling.num_logprobs is not None


def decode_chat(fields: Fields, *, arrival: float) -> GenerationOrder:
    """A body of `/v1/chat/completions`.

    Raises:
        BadField: a field is missing, or wrong.
    """
    choice = decode_tool_choice(fields)
    prompt = ChatPrompt(
        decode_messages(fields.list("messages")),
        choice.tools,
        _template_variables(fields),
        adds_answer=fields.flag("add_generation_prompt", default=True),
    )
    has_logprobs = fields.flag("logprobs")
    num_logprobs = fields.integer("top_logprobs")
    if num_logprobs is not None and not has_logprobs:
        raise BadField("top_logprobs needs logprobs to be true.", param="top_logprobs")
    max_tokens = fields.integer("max_completion_tokens")
    if max_tokens is None:
        max_tokens = fields.integer("max_tokens")
    fields.ignore("max_tokens")
    order = _decode_order(
        fields,
        prompts=(prompt,),
        arrival=arrival,
        max_tokens=max_tokens,
        num_logprobs=(num_logprobs or 0) if has_logprobs else None,
    )
    if choice.grammar is not None and order.grammar is not None:
        raise BadField(
            "tool_choice forces a call, so the answer cannot have a format of its own; leave "
            "response_format out.",
            param="response_format",
        )
    return replace(
        order,
        tool_names=choice.names,
        grammar=choice.grammar or order.grammar,
        has_reasoning=fields.flag("include_reasoning", default=True),
    )


def _template_variables(fields: Fields) -> dict[str, Any]:
    """What the template may know besides messages and tools."""
    effort = fields.text("reasoning_effort")
    variables = {} if effort is None else {"reasoning_effort": effort}
    given = fields.object("chat_template_kwargs")
    if given is not None:
        variables |= {name: given.value(name) for name in given.unread()}
    return variables


def decode_completion(fields: Fields, *, arrival: float) -> GenerationOrder:
    """A body of `/v1/completions`.

    Raises:
        BadField: a field is missing, or wrong.
    """
    num_logprobs = fields.integer("logprobs")
    is_echoed = fields.flag("echo")
    if is_echoed and num_logprobs is not None:
        raise BadField("echo with logprobs is not supported; leave one out.", param="echo")
    if fields.text("suffix"):
        raise BadField("suffix is not supported; put it into the prompt.", param="suffix")
    num_choices = fields.integer("n", default=1)
    if fields.integer("best_of", default=num_choices) != num_choices:
        raise BadField("best_of is not supported unless it equals n.", param="best_of")
    return _decode_order(
        fields,
        prompts=_decode_prompts(fields),
        arrival=arrival,
        max_tokens=fields.integer("max_tokens", default=DEFAULT_MAX_TOKENS),
        num_logprobs=num_logprobs,
        is_echoed=is_echoed,
    )


def decode_model(fields: Fields) -> tuple[str, ModelSpec]:
    """The model as it was written, `name`, `name/versions/2` or `name/labels/canary`; and the spec.

    Raises:
        BadField: it is missing, or no model can be named so.
    """
    model = fields.text("model", default="")
    match = _MODEL.fullmatch(model)
    if match is None:
        raise BadField("model is missing; name one that GET /v1/models lists.", param="model")
    name, digits, label = match.group("name", "version", "label")
    if digits is not None and int(digits) > MAX_VERSION:
        raise BadField(f"There can be no version {digits}.", param="model")
    version = None if digits is None else Version(int(digits))
    spec = ModelSpec(ModelName(name), version=version)
    return model, spec if label is None else spec._replace(label=VersionLabel(label))


def _decode_order(
    fields: Fields,
    *,
    prompts: tuple[Prompt, ...],
    arrival: float,
    max_tokens: int | None,
    num_logprobs: int | None,
    is_echoed: bool = False,
) -> GenerationOrder:
    model, spec = decode_model(fields)
    options = fields.object("stream_options")
    is_streamed = fields.flag("stream")
    if options is not None and not is_streamed:
        raise BadField("stream_options needs stream to be true.", param="stream_options")
    request = decode_options(
        fields, arrival=arrival, max_tokens=max_tokens, num_logprobs=num_logprobs
    )
    grammar = decode_grammar(fields)
    fields.ignore(*_WITHOUT_EFFECT)
    has_usage = options is not None and options.flag("include_usage")
    return GenerationOrder(
        model, spec, prompts, request, grammar, is_streamed, has_usage, is_echoed
    )


def _decode_prompts(fields: Fields) -> tuple[Prompt, ...]:
    adds_special = fields.flag("add_special_tokens", default=True)
    prompt = fields.value("prompt")
    if isinstance(prompt, str):
        return (TextPrompt(prompt, adds_special),)
    if not isinstance(prompt, list) or not prompt:
        raise BadField(
            "prompt is missing or empty; it must be text, token ids, or an array of either.",
            param="prompt",
        )
    if isinstance(prompt[0], int):
        return (decode_tokens(prompt, param="prompt"),)
    if len(prompt) > _MAX_PROMPTS:
        raise BadField(f"prompt has more than {_MAX_PROMPTS} prompts.", param="prompt")
    return tuple(_decode_prompt(one, adds_special=adds_special) for one in prompt)


def _decode_prompt(prompt: object, *, adds_special: bool) -> Prompt:
    if isinstance(prompt, str):
        return TextPrompt(prompt, adds_special)
    if isinstance(prompt, list):
        return decode_tokens(prompt, param="prompt")
    raise BadField("prompt must be text, token ids, or an array of either.", param="prompt")
