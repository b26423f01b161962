"""Constrained output, through the engine, with a decoder that would say something else."""

import asyncio
import json
import re
import threading
from typing import Any

import numpy as np
import pytest

from aspira.contracts.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from aspira.contracts.generation import FinishReason, Grammar, GrammarKind, SamplingParameters
from aspira.testing.toy_tokenizer import ByteTokenizer
from generation_toys import Received, SteppedEngine, make_request

pytest.importorskip("llguidance")

from llguidance import LLMatcher

from aspira.llm import grammar_compiler
from aspira.llm.grammar_compiler import MAX_GRAMMAR_BYTES, GrammarCompiler

PERSON = Grammar(
    GrammarKind.JSON_SCHEMA,
    json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"enum": ["Ada", "Émile"]},
                "age": {"type": "integer", "maximum": 99},
            },
            "required": ["name", "age"],
            "additionalProperties": False,
        }
    ),
)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(ByteTokenizer(), vocab_size=257)


def regex(pattern: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, pattern)


def schema(text: str) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, text)


def generate(compiler: GrammarCompiler, grammar: Grammar, **changes: object) -> Received:
    make_constraint = asyncio.run(compiler.compile(grammar))
    engine = SteppedEngine(vocabulary=ByteTokenizer())
    received = engine.submit(
        make_request([1, 2, 3], **{"max_tokens": 250, **changes}), make_constraint=make_constraint
    )
    engine.run()
    engine.check_idle()
    return received


@pytest.mark.parametrize("seed", range(5))
def test_output_matches_the_schema(compiler: GrammarCompiler, seed: int) -> None:
    sampling = SamplingParameters(temperature=5.0, seed=seed)
    received = generate(compiler, PERSON, sampling=sampling, num_choices=2)
    for choice in range(2):
        person = json.loads(received.text(choice))
        assert person["name"] in {"Ada", "Émile"}
        assert person["age"] <= 99
    assert received.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("pattern", ["[0-9]{3}-[0-9]{4}", "(yes|no)", "[a-c]{2,5}!", "é🙂"])
def test_output_matches_the_pattern(compiler: GrammarCompiler, pattern: str) -> None:
    received = generate(compiler, regex(pattern))
    assert re.fullmatch(pattern, received.text())
    assert received.finish_reason is FinishReason.STOP


def test_what_is_cut_by_length_says_so(compiler: GrammarCompiler) -> None:
    received = generate(compiler, regex("[a-z]{50}"), max_tokens=10)
    assert received.finish_reason is FinishReason.LENGTH


def test_white_space_does_not_go_on_for_ever(compiler: GrammarCompiler) -> None:
    constraint = asyncio.run(compiler.compile(PERSON))()
    constraint.accept(ord("{"))
    num_spaces = 0
    while np.unpackbits(constraint.allowed(), bitorder="little")[ord(" ")]:
        constraint.accept(ord(" "))
        num_spaces += 1
    assert num_spaces == 16


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        (regex("((("), "The regex cannot be used: .*unclosed group"),
        (regex("(?=x)y"), "look-ahead"),
        (schema("{"), "The json_schema cannot be used"),
        (schema('{} , "lark_grammar": "x"'), "The json_schema cannot be used"),
        (schema("[]"), "The json_schema cannot be used"),
        (schema('{"type": "nope"}'), "Invalid type: nope"),
        (schema('{"not": {}}'), "Unimplemented keys"),
        (schema('{"$ref": "http://example.com/x"}'), "does not fetch"),
        (schema('{"a":' * 900 + "1" + "}" * 900), "The json_schema cannot be used"),
        (regex("a" * (MAX_GRAMMAR_BYTES + 1)), f"more than {MAX_GRAMMAR_BYTES} bytes"),
    ],
    ids=range(10),
)
def test_bad_grammars_are_refused_with_the_reason(
    compiler: GrammarCompiler, grammar: Grammar, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        asyncio.run(compiler.compile(grammar))


class SlowCompiling:
    """In place of the compiler's own: each takes until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running, self.release = threading.Semaphore(0), threading.Event()
        self.num_compiled = 0
        self._compile = grammar_compiler._compile
        monkeypatch.setattr(grammar_compiler, "_compile", self)

    def __call__(self, grammar: Grammar, *, token_table: Any) -> Any:
        self.running.release()
        assert self.release.wait(60)
        self.num_compiled += 1
        return self._compile(grammar, token_table=token_table)

    async def wait_until_running(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.running.acquire, timeout=60)


def make_compiler(*, time_limit_s: float = 60.0) -> GrammarCompiler:
    return GrammarCompiler(
        ByteTokenizer(), vocab_size=257, time_limit_s=time_limit_s, patience_s=60.0
    )


def test_compiling_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowCompiling(monkeypatch)
    with pytest.raises(InvalidArgument, match="takes longer than 0 s"):
        asyncio.run(make_compiler(time_limit_s=0).compile(regex("a")))
    slow.release.set()


def test_few_are_compiled_at_a_time_and_others_work_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many come: each may take hundreds of megabytes, and the loop's pool is for all."""
    slow = SlowCompiling(monkeypatch)

    async def run() -> None:
        compiler = make_compiler()
        tasks = [asyncio.ensure_future(compiler.compile(regex("a" * n))) for n in range(1, 65)]
        await slow.wait_until_running(2)
        assert not slow.running.acquire(blocking=False)
        slow.release.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_whose_turn_does_not_come_is_told_to_try_again_and_not_to_be_simpler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = SlowCompiling(monkeypatch)

    async def run() -> None:
        compiler = make_compiler()
        hostile = [asyncio.ensure_future(compiler.compile(regex(p))) for p in ("(a{9}){9}", "b")]
        await slow.wait_until_running(2)
        compiler._patience_s = 0.0
        with pytest.raises(ResourceExhausted, match="try again") as refused:
            await compiler.compile(regex("honest"))
        assert refused.value.retry_after_s is not None
        slow.release.set()
        await asyncio.gather(*hostile)

    asyncio.run(run())
    assert slow.num_compiled == 2


def test_many_that_bring_the_same_new_grammar_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowCompiling(monkeypatch)

    async def run() -> None:
        compiler = make_compiler()
        tasks = [asyncio.ensure_future(compiler.compile(PERSON)) for _ in range(50)]
        await slow.wait_until_running(2)
        slow.release.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    assert slow.num_compiled == 2


class WatchedMatcher:
    """Notes the threads that compute masks, before and after it is copied."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._matcher = LLMatcher(*arguments, **options)
        self.masked_by: list[threading.Thread] = []
        self.copied_after: list[int] = []

    def is_error(self) -> bool:
        return bool(self._matcher.is_error())

    def compute_bitmask(self) -> bytes:
        self.masked_by.append(threading.current_thread())
        return bytes(self._matcher.compute_bitmask())

    def deep_copy(self) -> Any:
        self.copied_after.append(len(self.masked_by))
        return self._matcher.deep_copy()


def test_the_first_mask_which_may_take_long_is_computed_once_and_on_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[WatchedMatcher] = []

    def make(*arguments: Any, **options: Any) -> WatchedMatcher:
        made.append(WatchedMatcher(*arguments, **options))
        return made[-1]

    make.grammar_from_regex = LLMatcher.grammar_from_regex  # type: ignore[attr-defined]
    monkeypatch.setattr("llguidance.LLMatcher", make)
    compiler = GrammarCompiler(ByteTokenizer(), vocab_size=257)
    for _ in range(2):
        asyncio.run(compiler.compile(regex("(a{9}){9}")))()
    (matcher,) = made
    assert matcher.copied_after == [1, 1]
    assert threading.main_thread() not in matcher.masked_by


def test_choices_do_not_share_their_state(compiler: GrammarCompiler) -> None:
    make_constraint = asyncio.run(compiler.compile(regex("ab")))
    first, second = make_constraint(), make_constraint()
    first.accept(ord("a"))
    assert second.allowed().tolist() != first.allowed().tolist()


def test_a_token_that_does_not_fit_is_refused(compiler: GrammarCompiler) -> None:
    constraint = asyncio.run(compiler.compile(regex("ab")))()
    with pytest.raises(InvalidArgument, match="cannot go on within its grammar"):
        constraint.accept(ord("x"))


def test_logits_may_be_wider_than_the_vocabulary() -> None:
    compiler = GrammarCompiler(ByteTokenizer(), vocab_size=320)
    allowed = np.unpackbits(asyncio.run(compiler.compile(regex("a")))().allowed())
    assert (len(allowed), int(allowed.sum())) == (320, 1)


def test_a_model_without_an_end_token_is_refused() -> None:
    class Endless(ByteTokenizer):
        @property
        def eos_token_ids(self) -> frozenset[int]:
            return frozenset()

    with pytest.raises(FailedPrecondition, match="no end token"):
        GrammarCompiler(Endless(), vocab_size=257)
