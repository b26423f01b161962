"""What a language model is asked for by named values, as Triton's vLLM backend has them.

`text_input` is the prompt. Options come beside it, as parameters, or in `sampling_parameters`, as
JSON. Without streaming the prompt begins the output, unless `exclude_input_in_output`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import orjson

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.generation import GenerateRequest, Grammar
from aspira.contracts.tensors import Tensors
from aspira.frontends.generation.fields import BadField, Fields
from aspira.frontends.generation.options import (
    DEFAULT_MAX_TOKENS,
    decode_grammar,
    decode_options,
)
from aspira.frontends.open_inference.tensors import BYTES
from aspira.llm.model_text import TextPrompt

TEXT_INPUTS: Mapping[str, str] = MappingProxyType(
    {
        "text_input": BYTES,
        "stream": "BOOL",
        "sampling_parameters": BYTES,
        "exclude_input_in_output": "BOOL",
        "return_finish_reason": "BOOL",
        "return_cumulative_logprob": "BOOL",
        "return_logprobs": "BOOL",
        "return_num_input_tokens": "BOOL",
        "return_num_output_tokens": "BOOL",
    }
)
"""Inputs of one element each, with their datatypes; all but the first may be left out."""

TEXT_OUTPUT = "text_output"
TEXT_OUTPUTS: Mapping[str, str] = MappingProxyType(
    {
        TEXT_OUTPUT: BYTES,
        "finish_reason": BYTES,
        "cumulative_logprob": "FP32",
        "logprobs": BYTES,
        "num_input_tokens": "UINT32",
        "num_output_tokens": "UINT32",
    }
)
"""Outputs with their datatypes: an element for each choice, but for `num_input_tokens`."""

_LOGPROB_OUTPUTS = frozenset({"cumulative_logprob", "logprobs"})
_TEXTS = frozenset(
    {"text_input", "sampling_parameters", "stop", "stop_words", "guided_regex", "cache_salt"}
)
# What Triton's other backends call these.
_ALIASES: Mapping[str, str] = MappingProxyType({"stop_words": "stop", "random_seed": "seed"})
_REFUSED = ("image", "lora_name", "use_beam_search", "bad_words", "embedding_request")
# Of the protocol, and without effect on a text.
_WITHOUT_EFFECT = (
    "id", "binary_data_output", "triton_enable_empty_final_response", "timeout", "sequence_id",
    "sequence_start", "sequence_end", "headers",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextOrder:
    """What one request asks for. `outputs` are wanted in each answer."""

    prompt: TextPrompt
    request: GenerateRequest
    grammar: Grammar | None
    outputs: tuple[str, ...]
    is_streamed: bool
    begins_with_prompt: bool


def decode_text_order(
    fields: Fields, *, arrival: float, is_streamed: bool, outputs: Iterable[str] = ()
) -> TextOrder:
    """An order from values by name; `is_streamed` is what holds where `stream` is not there.

    Raises:
        BadField: a value is missing, or wrong.
    """
    text = fields.text("text_input")
    if text is None:
        raise BadField("text_input is missing: the text to continue.", param="text_input")
    for name in _REFUSED:
        if fields.value(name):
            raise BadField(f"{name} is not supported here; leave it out.", param=name)
    is_streamed = fields.flag("stream", default=is_streamed)
    excludes_prompt = fields.flag("exclude_input_in_output", default=is_streamed)
    if is_streamed and not excludes_prompt:
        raise BadField(
            "exclude_input_in_output cannot be false for a stream.",
            param="exclude_input_in_output",
        )
    wanted = _choose_outputs(fields, requested=tuple(outputs))
    num_logprobs = fields.integer("logprobs")
    if num_logprobs is None and _LOGPROB_OUTPUTS.intersection(wanted):
        num_logprobs = 0
    request = decode_options(
        fields,
        arrival=arrival,
        max_tokens=fields.integer("max_tokens", default=DEFAULT_MAX_TOKENS),
        num_logprobs=num_logprobs,
    )
    grammar = decode_grammar(fields)
    fields.ignore(*_WITHOUT_EFFECT)
    return TextOrder(TextPrompt(text), request, grammar, wanted, is_streamed, not excludes_prompt)


def merge_values(parameters: Mapping[str, Any], *, values: Mapping[str, Any]) -> Fields:
    """Named values over the parameters of a request, as fields.

    Numbers may come as text: so Triton's own client sends them.

    Raises:
        InvalidArgument: `sampling_parameters` is no JSON object.
    """
    merged = {**parameters, **values}
    sampling = merged.pop("sampling_parameters", None)
    if sampling:
        merged |= _parse_object(sampling)
    return Fields(
        {
            _ALIASES.get(name, name): value if name in _TEXTS else _untextual(value)
            for name, value in merged.items()
        }
    )


def values_of(tensors: Tensors) -> dict[str, Any]:
    """The one element of each tensor, as JSON would have it.

    Raises:
        InvalidArgument: one has several, or is no text.
    """
    return {
        name: _only_value(tensor.reshape(-1).tolist(), name=name)
        for name, tensor in tensors.items()
    }


def _choose_outputs(fields: Fields, *, requested: tuple[str, ...]) -> tuple[str, ...]:
    for name in requested:
        if name not in TEXT_OUTPUTS:
            raise BadField(
                f"There is no output {shorten(name)!r}; there are {', '.join(TEXT_OUTPUTS)}.",
                param="outputs",
            )
    asked = {name for name in TEXT_OUTPUTS if fields.flag(f"return_{name}")}
    wanted = asked | (set(requested) or {TEXT_OUTPUT})
    return tuple(name for name in TEXT_OUTPUTS if name in wanted)


def _parse_object(text: object) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if isinstance(text, str) else text
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise BadField("sampling_parameters must be a JSON object.", param="sampling_parameters")
    return value


def _untextual(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return value if isinstance(parsed, str) else parsed


def _only_value(values: list[Any], *, name: str) -> Any:
    if len(values) != 1:
        raise InvalidArgument(f"{name} must have one element, not {len(values)}.")
    (value,) = values
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{name} is not UTF-8 text.") from None
