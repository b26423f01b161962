"""Restricts output to a JSON schema or a regular expression, with llguidance.

Its limits count work, not time, so a hostile grammar costs a bounded amount in the compiler and in
each step: seconds and hundreds of megabytes at worst, hence threads of its own, and few. The time
limits are for the waiting client: one for its turn, which is nobody's fault, one for its grammar.
"""

import asyncio
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import orjson

from aspira.contracts.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from aspira.contracts.generation import Grammar, GrammarKind
from aspira.llm.constraints import MakeConstraint
from aspira.llm.sampler import PackedMask
from aspira.llm.vocabulary import Vocabulary

if TYPE_CHECKING:
    import llguidance

MAX_GRAMMAR_BYTES = 65_536
_NUM_KEPT = 64
"""Compiled grammars that are kept: agents send the same few with every request."""

_NUM_THREADS = 2

_WHITESPACE = r"[ \n\r\t]{1,16}"
"""Between JSON's tokens. A model that is fond of it must not go on with it for ever."""

_STEP_FUEL = 100_000
"""The most work for one token's mask, about 7 ms: other streams wait for it."""


class GrammarCompiler:
    """For one vocabulary. Takes a moment to make; used from one event loop at a time."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        vocab_size: int,
        time_limit_s: float = 10.0,
        patience_s: float = 10.0,
    ) -> None:
        self._token_table = _make_token_table(vocabulary, vocab_size=vocab_size)
        self._mask_bytes = -(-vocab_size // 8)
        self._time_limit_s = time_limit_s
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(_NUM_THREADS, "aspira-grammar")
        self._lock = threading.Lock()
        self._compiled: OrderedDict[Grammar, llguidance.LLMatcher] = OrderedDict()

    async def compile(self, grammar: Grammar) -> MakeConstraint:
        """What makes a constraint for each choice.

        Raises:
            InvalidArgument: the grammar is wrong, too large, or takes too long to compile.
            ResourceExhausted: others take so long that its turn does not come.
        """
        matcher = self._find(grammar)
        if matcher is None:
            matcher = await self._compile_in_time(grammar)
        return lambda: GrammarConstraint(matcher.deep_copy(), mask_bytes=self._mask_bytes)

    async def _compile_in_time(self, grammar: Grammar) -> "llguidance.LLMatcher":
        if len(grammar.text.encode()) > MAX_GRAMMAR_BYTES:
            raise InvalidArgument(
                f"The {grammar.kind.value} has more than {MAX_GRAMMAR_BYTES} bytes."
            )
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def work() -> "llguidance.LLMatcher":
            loop.call_soon_threadsafe(begun.set)
            return self._find_or_compile(grammar)

        matcher = loop.run_in_executor(self._threads, work)
        try:
            await self._wait_for_turn(begun, grammar=grammar)
            async with asyncio.timeout(self._time_limit_s):
                return await matcher
        except TimeoutError:
            raise InvalidArgument(
                f"The {grammar.kind.value} takes longer than {self._time_limit_s:g} s to compile; "
                "make it simpler."
            ) from None
        finally:
            # If it has not begun, nobody waits for it any more.
            matcher.cancel()

    async def _wait_for_turn(self, begun: asyncio.Event, *, grammar: Grammar) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await begun.wait()
        except TimeoutError:
            raise ResourceExhausted(
                f"The {grammar.kind.value} is new to this server, and others have been compiled "
                f"for {self._patience_s:g} s; try again, or use another replica.",
                retry_after_s=self._patience_s,
            ) from None

    def _find_or_compile(self, grammar: Grammar) -> "llguidance.LLMatcher":
        """On a thread. Many may have come at once with a grammar that was new to all of them."""
        matcher = self._find(grammar)
        if matcher is None:
            matcher = _compile(grammar, token_table=self._token_table)
            with self._lock:
                self._compiled[grammar] = matcher
                if len(self._compiled) > _NUM_KEPT:
                    self._compiled.popitem(last=False)
        return matcher

    def _find(self, grammar: Grammar) -> "llguidance.LLMatcher | None":
        with self._lock:
            matcher = self._compiled.get(grammar)
            if matcher is not None:
                self._compiled.move_to_end(grammar)
            return matcher


class GrammarConstraint:
    """The state of one choice."""

    def __init__(self, matcher: "llguidance.LLMatcher", *, mask_bytes: int) -> None:
        self._matcher = matcher
        self._mask_bytes = mask_bytes

    def allowed(self) -> PackedMask:
        mask = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        return mask[: self._mask_bytes]

    def accept(self, token_id: int) -> None:
        if not self._matcher.consume_token(token_id):
            reason = self._matcher.get_error().splitlines()[0]
            raise InvalidArgument(f"The output cannot go on within its grammar: {reason}")

    @property
    def is_complete(self) -> bool:
        return self._matcher.is_stopped()


class _TokenTable:
    """A vocabulary as llguidance wants it."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, *, vocab_size: int) -> None:
        texts = [
            vocabulary.token_bytes(token_id) if token_id < vocabulary.vocab_size else None
            for token_id in range(vocab_size)
        ]
        self.eos_token_id = min(vocabulary.eos_token_ids)
        self.tokens = [text or b"\xff<%d>" % i for i, text in enumerate(texts)]
        self.special_token_ids = [i for i, text in enumerate(texts) if not text]
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> list[int]:
        return self._vocabulary.encode(text)


def _make_token_table(vocabulary: Vocabulary, *, vocab_size: int) -> "llguidance.LLTokenizer":
    try:
        import llguidance
    except ImportError:
        raise FailedPrecondition(
            "Output in a grammar needs the package llguidance: install aspira[grammar]"
        ) from None
    if not vocabulary.eos_token_ids:
        raise FailedPrecondition("The model has no end token, which output in a grammar needs")
    wrapper = llguidance.TokenizerWrapper(_TokenTable(vocabulary, vocab_size=vocab_size))
    return llguidance.LLTokenizer(wrapper, eos_token=sorted(vocabulary.eos_token_ids))


def _compile(grammar: Grammar, *, token_table: "llguidance.LLTokenizer") -> "llguidance.LLMatcher":
    import llguidance

    limits = llguidance.LLParserLimits(step_lexer_fuel=_STEP_FUEL, verbose_errors=False)
    matcher = llguidance.LLMatcher(token_table, _translate(grammar), log_level=0, limits=limits)
    if not matcher.is_error():
        # The first mask is where patterns are taken apart, seconds long if they are hostile. Copies
        # have that from here, and no engine's thread does it.
        matcher.compute_bitmask()
    if matcher.is_error():
        raise _invalid(grammar, reason=matcher.get_error())
    return matcher


def _translate(grammar: Grammar) -> str:
    """In llguidance's own format."""
    import llguidance

    if grammar.kind is GrammarKind.REGEX:
        return llguidance.LLMatcher.grammar_from_regex(grammar.text)
    try:
        schema = orjson.loads(grammar.text)
        if schema is True:
            schema = {}
        return llguidance.LLMatcher.grammar_from_json_schema(
            schema, overrides={"whitespace_pattern": _WHITESPACE}
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise _invalid(grammar, reason=str(error)) from None


def _invalid(grammar: Grammar, *, reason: str) -> InvalidArgument:
    shown = " ".join(reason.split())[:300]
    return InvalidArgument(f"The {grammar.kind.value} cannot be used: {shown}")
