import math
import re
from dataclasses import replace

import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.generation import (
    ContextLength,
    ContextLengthExceeded,
    GenerateRequest,
    SamplingParameters,
    StopRules,
    TimeLimits,
)
from aspira.llm.request_checks import check_request
from generation_toys import make_request


def check(request: GenerateRequest) -> int:
    return check_request(request, vocab_size=100, max_context=32, max_choices=4)


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "allowed"), [(10, 5, 5), (10, 22, 22), (10, None, 22), (31, 1, 1)]
)
def test_what_fits_is_allowed(num_prompt: int, max_tokens: int | None, allowed: int) -> None:
    assert check(make_request([1] * num_prompt, max_tokens=max_tokens)) == allowed


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "length"),
    [
        (10, 23, ContextLength(32, 10, 23)),
        (32, None, ContextLength(32, 32, 1)),
        (500, 8, ContextLength(32, 500, 8)),
    ],
)
def test_what_can_never_fit_is_refused_with_the_numbers(
    num_prompt: int, max_tokens: int | None, length: ContextLength
) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        check(make_request([1] * num_prompt, max_tokens=max_tokens))
    assert caught.value.length == length
    assert "32 tokens" in caught.value.message
    assert f"{num_prompt} in the prompt" in caught.value.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": ()}, "The prompt has no tokens"),
        ({"prompt": (1, 100)}, "The prompt has the token 100; the model's tokens are 0 to 99"),
        ({"prompt": (-1,)}, "The prompt has the token -1"),
        ({"num_choices": 0}, "n must be at least 1 and at most 4, not 0"),
        ({"num_choices": 5}, "n must be at least 1 and at most 4, not 5"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"sampling": SamplingParameters(temperature=-0.1)}, "temperature must be at least 0"),
        ({"sampling": SamplingParameters(temperature=math.nan)}, "temperature must be"),
        ({"sampling": SamplingParameters(temperature=math.inf)}, "temperature must be"),
        ({"sampling": SamplingParameters(top_p=1.1)}, "top_p must be at least 0 and at most 1"),
        ({"sampling": SamplingParameters(min_p=-1)}, "min_p must be"),
        ({"sampling": SamplingParameters(top_k=-1)}, "top_k must be at least 0, not -1"),
        ({"sampling": SamplingParameters(repetition_penalty=0)}, "repetition_penalty must be"),
        ({"sampling": SamplingParameters(frequency_penalty=3)}, "frequency_penalty must be"),
        ({"sampling": SamplingParameters(presence_penalty=-3)}, "presence_penalty must be"),
        ({"sampling": SamplingParameters(num_logprobs=21)}, "top_logprobs must be"),
        ({"sampling": SamplingParameters(seed=2**64)}, "seed must be"),
        ({"sampling": SamplingParameters(logit_bias=((1, 101.0),))}, "logit_bias must be"),
        ({"sampling": SamplingParameters(logit_bias=((1, math.nan),))}, "logit_bias must be"),
        ({"sampling": SamplingParameters(logit_bias=((100, 1.0),))}, "logit_bias has the token"),
        ({"sampling": SamplingParameters(logit_bias=((1, 1.0),) * 1025)}, "tokens in logit_bias"),
        ({"stops": StopRules(strings=("",))}, "A stop string is empty"),
        ({"stops": StopRules(strings=("a",) * 33)}, "the number of stop strings must be"),
        ({"stops": StopRules(strings=("a" * 1025,))}, "the length of a stop string must be"),
        ({"stops": StopRules(token_ids=frozenset({100}))}, "stop_token_ids has the token 100"),
        ({"stops": StopRules(min_tokens=9)}, "min_tokens must be at least 0 and at most 8, not 9"),
        ({"times": TimeLimits(total_s=-1)}, "the total time limit must be"),
        ({"times": TimeLimits(gap_s=math.nan)}, "the gap time limit must be"),
    ],
)
def test_values_out_of_range_are_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        check(replace(make_request([1, 2]), **changes))
