"""Refuses requests that no engine could serve, before anything is queued for them."""

import math
from collections.abc import Collection, Iterable

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.generation import (
    ContextLength,
    ContextLengthExceeded,
    GenerateRequest,
    SamplingParameters,
    StopRules,
    TimeLimits,
)

MAX_LOGPROBS = 20
MAX_BIASED_TOKENS = 1024
MAX_STOP_STRINGS = 32
MAX_STOP_STRING_LENGTH = 1024

Range = tuple[str, float | None, float, float]


def check_request(
    request: GenerateRequest, *, vocab_size: int, max_context: int, max_choices: int
) -> int:
    """Check everything; returns how many tokens each choice may get.

    Raises:
        InvalidArgument: a value is out of range. The message names the field.
        ContextLengthExceeded: prompt and output could never fit.
    """
    if not request.prompt:
        raise InvalidArgument("The prompt has no tokens; it must have at least one.")
    _check_tokens(request.prompt, name="The prompt", vocab_size=vocab_size)
    _check_ranges(
        (
            ("n", request.num_choices, 1, max_choices),
            ("max_tokens", request.max_tokens, 1, math.inf),
        )
    )
    _check_sampling(request.sampling, vocab_size=vocab_size)
    _check_times(request.times)
    max_tokens = _choose_max_tokens(request, max_context=max_context)
    _check_stops(request.stops, vocab_size=vocab_size, max_tokens=max_tokens)
    return max_tokens


def _choose_max_tokens(request: GenerateRequest, *, max_context: int) -> int:
    num_prompt = len(request.prompt)
    wanted = request.max_tokens or max(max_context - num_prompt, 1)
    if num_prompt + wanted > max_context:
        raise ContextLengthExceeded(ContextLength(max_context, num_prompt, wanted))
    return wanted


def _check_sampling(sampling: SamplingParameters, *, vocab_size: int) -> None:
    _check_ranges(
        (
            ("repetition_penalty", sampling.repetition_penalty, 0.01, 100.0),
            ("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0),
            ("presence_penalty", sampling.presence_penalty, -2.0, 2.0),
            ("temperature", sampling.temperature, 0.0, 100.0),
            ("min_p", sampling.min_p, 0.0, 1.0),
            ("top_k", sampling.top_k, 0, math.inf),
            ("top_p", sampling.top_p, 0.0, 1.0),
            ("seed", sampling.seed, -(2**63), 2**64 - 1),
            ("top_logprobs", sampling.num_logprobs, 0, MAX_LOGPROBS),
            ("the number of tokens in logit_bias", len(sampling.logit_bias), 0, MAX_BIASED_TOKENS),
            *(("logit_bias", bias, -100.0, 100.0) for _, bias in sampling.logit_bias),
        )
    )
    _check_tokens([t for t, _ in sampling.logit_bias], name="logit_bias", vocab_size=vocab_size)


def _check_stops(stops: StopRules, *, vocab_size: int, max_tokens: int) -> None:
    _check_ranges(
        (
            ("the number of stop strings", len(stops.strings), 0, MAX_STOP_STRINGS),
            ("the length of a stop string", _longest(stops.strings), 0, MAX_STOP_STRING_LENGTH),
            ("min_tokens", stops.min_tokens, 0, max_tokens),
        )
    )
    if "" in stops.strings:
        raise InvalidArgument("A stop string is empty; leave it out.")
    _check_tokens(stops.token_ids, name="stop_token_ids", vocab_size=vocab_size)


def _longest(strings: Iterable[str]) -> int:
    return max((len(string) for string in strings), default=0)


def _check_times(times: TimeLimits) -> None:
    _check_ranges(
        (
            ("the queue time limit", times.queue_s, 0.0, math.inf),
            ("the first token time limit", times.first_token_s, 0.0, math.inf),
            ("the gap time limit", times.gap_s, 0.0, math.inf),
            ("the total time limit", times.total_s, 0.0, math.inf),
        )
    )


def _check_ranges(ranges: Iterable[Range]) -> None:
    for name, value, low, high in ranges:
        if value is not None and not low <= value <= high:
            upper = "" if high == math.inf else f" and at most {high:g}"
            raise InvalidArgument(f"{name} must be at least {low:g}{upper}, not {value}.")


def _check_tokens(token_ids: Collection[int], *, name: str, vocab_size: int) -> None:
    # Prompts are long and this runs on the event loop: no loop of our own.
    for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
        if not 0 <= token_id < vocab_size:
            raise InvalidArgument(
                f"{name} has the token {token_id}; the model's tokens are 0 to {vocab_size - 1}."
            )
