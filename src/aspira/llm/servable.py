"""A loaded version of a language model: text to tokens on a pool, tokens to a stream."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from aspira.contracts.errors import FailedPrecondition, ServingError
from aspira.contracts.generation import (
    GenerateRequest,
    GenerationStatistics,
    Grammar,
    TimeLimits,
    TokenId,
)
from aspira.contracts.servable import Served
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensors
from aspira.llm.constraints import MakeConstraint
from aspira.llm.engine import Engine
from aspira.llm.grammar_compiler import GrammarCompiler
from aspira.llm.model_text import ModelText, Prompt, TokenPrompt
from aspira.llm.reasoning_tags import find_reasoning_tags
from aspira.llm.streams import TokenStream

_ADVICE = " (it is a language model, which has none: ask /v1/chat/completions or /v1/completions)"
_NO_SIGNATURES: Mapping[str, Signature] = MappingProxyType({})


class LanguageModel:
    """See `Served`. Event loop only, but for `unload` and `statistics`."""

    def __init__(
        self,
        engine: Engine,
        *,
        text: ModelText,
        times: TimeLimits,
        on_unloaded: Callable[[bool], None],
        predictor: Served | None = None,
    ) -> None:
        """The engine is warm and idle.

        `times` limit each request; `on_unloaded` is told at the end whether all memory is free.
        `predictor` answers plain predictions on the same version.
        """
        self._engine = engine
        self._text = text
        self._on_unloaded = on_unloaded
        self.predictor = predictor
        self._compiler: GrammarCompiler | None = None
        self._making_compiler = asyncio.Lock()
        self._warm_up = engine.statistics
        self.times = times
        self.reasoning_tags = find_reasoning_tags(text.vocabulary)

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return _NO_SIGNATURES if self.predictor is None else self.predictor.signatures

    @property
    def signature_advice(self) -> str:
        return _ADVICE

    @property
    def max_context(self) -> int:
        """The most tokens that prompt and output can have together."""
        return self._engine.max_context

    @property
    def statistics(self) -> GenerationStatistics:
        """The engine's state and totals, without those of its warm-up. From any thread."""
        return _since(self._warm_up, now=self._engine.statistics)

    def find_problem(self) -> ServingError | None:
        return self._engine.find_problem()

    @property
    def is_lost(self) -> bool:
        return self._engine.is_lost

    async def encode(self, prompt: Prompt) -> TokenPrompt:
        """The tokens of a prompt, made on the loop's pool.

        Raises:
            ServingError: the prompt is refused.
        """
        if isinstance(prompt, tuple):
            return prompt
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, partial(self._text.encode, prompt))

    async def decode(self, token_ids: Sequence[TokenId]) -> str:
        """The text of tokens, the special ones included, made on the loop's pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, partial(self._text.decode, token_ids))

    def describe_token(self, token_id: TokenId) -> tuple[str, bytes | None]:
        """A token's text, and its bytes, which alone may be no text; a special one has none."""
        spelled = self._text.vocabulary.token_bytes(token_id)
        if spelled is None:
            return self._text.decode([token_id]), None
        return spelled.decode("utf-8", "replace"), spelled

    async def compile(self, grammar: Grammar) -> MakeConstraint:
        """What restricts output to a grammar.

        Raises:
            InvalidArgument: it is wrong, too large, or takes too long to compile.
            FailedPrecondition: grammars are not installed.
        """
        async with self._making_compiler:
            if self._compiler is None:
                loop = asyncio.get_running_loop()
                self._compiler = await loop.run_in_executor(None, self._make_compiler)
        return await self._compiler.compile(grammar)

    def submit(
        self, request: GenerateRequest, *, make_constraint: MakeConstraint | None = None
    ) -> TokenStream:
        """See `Engine.submit`."""
        return self._engine.submit(request, make_constraint=make_constraint)

    async def run(
        self,
        signature_name: str,
        *,
        inputs: Tensors,
        outputs: tuple[str, ...],
        deadline: float | None,
        priority: int = 0,
    ) -> Tensors:
        """See `Served.run`. Without a predictor no signature can be found, so nothing can run."""
        if self.predictor is None:
            raise FailedPrecondition(f"There is no signature to run{_ADVICE}")
        return await self.predictor.run(
            signature_name, inputs=inputs, outputs=outputs, deadline=deadline, priority=priority
        )

    def unload(self) -> None:
        """End the engine and free its memory. Nobody streams: who does has leased the version."""
        is_free = self._engine.close(drain_s=0.0)
        with ExitStack() as stack:
            stack.callback(self._on_unloaded, is_free)
            if is_free and self.predictor is not None:
                self.predictor.unload()

    def _make_compiler(self) -> GrammarCompiler:
        return GrammarCompiler(self._text.vocabulary, vocab_size=self._engine.vocab_size)


def _since(earlier: GenerationStatistics, *, now: GenerationStatistics) -> GenerationStatistics:
    """What was counted after `earlier`."""
    return replace(
        now,
        prompt_tokens=now.prompt_tokens - earlier.prompt_tokens,
        generation_tokens=now.generation_tokens - earlier.generation_tokens,
        prefix_cache_queries=now.prefix_cache_queries - earlier.prefix_cache_queries,
        prefix_cache_hits=now.prefix_cache_hits - earlier.prefix_cache_hits,
        num_steps=now.num_steps - earlier.num_steps,
        requests_accepted=now.requests_accepted - earlier.requests_accepted,
        requests_ended={
            outcome: count - earlier.requests_ended.get(outcome, 0)
            for outcome, count in now.requests_ended.items()
            if count > earlier.requests_ended.get(outcome, 0)
        },
    )
