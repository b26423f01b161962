"""The options that every API for language models takes, by OpenAI's and vLLM's names."""

from collections.abc import Sequence
from typing import Any

import orjson

from aspira.contracts.errors import shorten
from aspira.contracts.generation import (
    GenerateRequest,
    Grammar,
    GrammarKind,
    SamplingParameters,
    StopRules,
)
from aspira.frontends.generation.fields import BadField, Fields, as_number
from aspira.frontends.origin import current_origin

DEFAULT_MAX_TOKENS = 16
"""Where a text is continued. An answer in a chat ends by itself."""

_MAX_TOKENS = 1 << 20
"""Of a list of ids. No model's context is longer, and this is read on the event loop."""

_ANY_OBJECT = '{"type":"object"}'


def decode_options(
    fields: Fields, *, arrival: float, max_tokens: int | None, num_logprobs: int | None
) -> GenerateRequest:
    """All of a request but its prompt and its grammar.

    Raises:
        BadField: a field is wrong.
    """
    return GenerateRequest(
        (),
        arrival,
        max_tokens,
        num_choices=fields.integer("n", default=1),
        sampling=_decode_sampling(fields, num_logprobs=num_logprobs),
        stops=_decode_stops(fields),
        cache_salt=fields.text("cache_salt", default=""),
        priority=fields.integer("priority", default=0),
        origin=current_origin(),
    )


def decode_grammar(fields: Fields) -> Grammar | None:
    """What the output has to match, if anything.

    Raises:
        BadField: a field is wrong.
    """
    pattern = fields.text("guided_regex")
    if pattern is not None:
        return Grammar(GrammarKind.REGEX, pattern)
    wanted = fields.object("response_format")
    kind = "text" if wanted is None else wanted.text("type", default="")
    if wanted is None or kind == "text":
        return None
    if kind == "json_object":
        return Grammar(GrammarKind.JSON_SCHEMA, _ANY_OBJECT)
    described = wanted.object("json_schema") if kind == "json_schema" else None
    schema = described.value("schema") if described is not None else None
    if not isinstance(schema, dict | bool):
        raise BadField(
            "response_format must be text, json_object, or json_schema with a json_schema.schema.",
            param="response_format",
        )
    return encode_schema(schema, param="response_format")


def encode_schema(schema: object, *, param: str) -> Grammar:
    """What matches a JSON schema; `param` is where that came from.

    Raises:
        BadField: it is nested deeper than any schema that has a use.
    """
    try:
        return Grammar(GrammarKind.JSON_SCHEMA, orjson.dumps(schema).decode())
    except orjson.JSONEncodeError:
        raise BadField(f"{param} has a schema that is nested too deeply.", param=param) from None


def decode_tokens(values: Sequence[Any], *, param: str) -> tuple[int, ...]:
    """Token ids as they are; `param` is what they are called.

    Raises:
        BadField: one is no integer, or there are more than any model could take.
    """
    if len(values) > _MAX_TOKENS:
        raise BadField(f"{param} has more than {_MAX_TOKENS} tokens.", param=param)
    if not {int}.issuperset(map(type, values)):
        raise BadField(f"{param} must have token ids, which are integers.", param=param)
    return tuple(values)


def _decode_sampling(fields: Fields, *, num_logprobs: int | None) -> SamplingParameters:
    temperature = fields.number("temperature", default=1.0)
    if not 0.0 <= temperature <= 2.0:
        raise BadField("temperature must be between 0 and 2.", param="temperature")
    return SamplingParameters(
        repetition_penalty=fields.number("repetition_penalty", default=1.0),
        frequency_penalty=fields.number("frequency_penalty", default=0.0),
        presence_penalty=fields.number("presence_penalty", default=0.0),
        logit_bias=_decode_bias(fields.object("logit_bias")),
        temperature=temperature,
        min_p=fields.number("min_p", default=0.0),
        # Other servers have -1 for all.
        top_k=max(fields.integer("top_k", default=0), 0),
        top_p=fields.number("top_p", default=1.0),
        seed=fields.integer("seed"),
        num_logprobs=num_logprobs,
    )


def _decode_bias(biases: Fields | None) -> tuple[tuple[int, float], ...]:
    if biases is None:
        return ()
    pairs = []
    for key in biases.unread():
        if not key.isdecimal() or len(key) > 9:
            raise BadField(f"logit_bias: {shorten(key)!r} is not a token id.", param="logit_bias")
        pairs.append((int(key), as_number(biases.value(key), name="logit_bias")))
    return tuple(pairs)


def _decode_stops(fields: Fields) -> StopRules:
    stop = fields.value("stop")
    strings = [stop] if isinstance(stop, str) else fields.list("stop")
    if not all(isinstance(string, str) for string in strings):
        raise BadField("stop must be a string or an array of strings.", param="stop")
    return StopRules(
        strings=tuple(strings),
        token_ids=frozenset(decode_tokens(fields.list("stop_token_ids"), param="stop_token_ids")),
        min_tokens=fields.integer("min_tokens", default=0),
        ignore_eos=fields.flag("ignore_eos"),
        include_stop_string=fields.flag("include_stop_str_in_output"),
    )
