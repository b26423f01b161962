"""Has a new engine do all that a request has done, so that the first one finds it done before."""

from contextlib import suppress

from aspira.contracts.errors import ServingError
from aspira.contracts.generation import GenerateRequest, SamplingParameters, StopRules
from aspira.llm.engine import Engine
from aspira.llm.model_text import ChatPrompt, ModelText

_NUM_OUTPUT_TOKENS = 4
_SALT = "warm-up"
"""Requests of users never find what warm-up left in the cache."""


async def warm_up(engine: Engine, *, text: ModelText, num_step_tokens: int, now: float) -> None:
    """A prompt that fills a step, and a few tokens after it, by the way of every request.

    The template is used for the first time too; one that refuses our message may like others.

    Raises:
        ServingError: the engine cannot do it.
    """
    with suppress(ServingError):
        text.encode(ChatPrompt([{"role": "user", "content": "Hello"}]))
    num_tokens = max(1, min(num_step_tokens, engine.max_context - _NUM_OUTPUT_TOKENS))
    request = GenerateRequest(
        tuple(index % text.vocabulary.vocab_size for index in range(num_tokens)),
        now,
        min(_NUM_OUTPUT_TOKENS, engine.max_context - num_tokens),
        sampling=SamplingParameters(temperature=0.0),
        stops=StopRules(ignore_eos=True),
        cache_salt=_SALT,
    )
    async with engine.submit(request) as stream:
        async for _ in stream:
            pass
