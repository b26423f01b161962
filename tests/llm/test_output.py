"""What a choice's consumer gets, token by token."""

from collections.abc import Iterable

import pytest

from aspira.contracts.generation import Delta, FinishReason, StopRules, TokenLogprob
from aspira.llm.output import ChoiceOutput, OutputRules
from aspira.llm.sampler import DrawnToken
from aspira.testing.toy_tokenizer import END_TOKEN, ByteTokenizer

NO_STOPS = StopRules()
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


def make_output(stops: StopRules = NO_STOPS, *, max_tokens: int = 100) -> ChoiceOutput:
    return ChoiceOutput(0, rules=OutputRules(stops, max_tokens, ByteTokenizer()), prompt=())


def push_all(output: ChoiceOutput, tokens: Iterable[int]) -> list[Delta]:
    """All deltas up to the end."""
    deltas = []
    for token in tokens:
        delta = output.push(DrawnToken(token))
        if delta is not None:
            deltas.append(delta)
            if delta.finish_reason is not None:
                break
    return deltas


def summary(deltas: list[Delta]) -> tuple[str, int, FinishReason | None, str | int | None]:
    return (
        "".join(delta.text for delta in deltas),
        sum(len(delta.token_ids) for delta in deltas),
        deltas[-1].finish_reason,
        deltas[-1].stopped_by,
    )


@pytest.mark.parametrize(
    ("stops", "tokens", "expected"),
    [
        pytest.param(StopRules(), [*b"hi", END_TOKEN, *b"no"], ("hi", 3, STOP, None), id="end"),
        pytest.param(
            StopRules(token_ids=frozenset({ord("!")})), b"hi!no", ("hi", 3, STOP, 33), id="token"
        ),
        pytest.param(StopRules(strings=("lo",)), b"hello you", ("hel", 5, STOP, "lo"), id="string"),
        pytest.param(
            StopRules(strings=("lo",), include_stop_string=True),
            b"hello you",
            ("hello", 5, STOP, "lo"),
            id="string included",
        ),
        pytest.param(StopRules(), b"hello there", ("hello ", 6, LENGTH, None), id="length"),
        pytest.param(
            StopRules(ignore_eos=True), [*b"hi", END_TOKEN, *b"you"], ("hiyou", 6, LENGTH, None),
            id="end ignored",
        ),
        pytest.param(
            StopRules(strings=("you",)), [*b"hi yo", END_TOKEN], ("hi yo", 6, STOP, None),
            id="held text is flushed",
        ),
        pytest.param(
            StopRules(strings=("o\ufffd",)), [*b"hello", 0xE2], ("hell", 6, STOP, "o\ufffd"),
            id="a stop string in flushed text",
        ),
        pytest.param(
            StopRules(strings=("l",), min_tokens=4), b"helplo", ("helplo"[:4], 5, STOP, "l"),
            id="no stop before the minimum",
        ),
        pytest.param(
            StopRules(), "ab🙂".encode()[:6], ("ab🙂", 6, LENGTH, None), id="whole at the end"
        ),
        pytest.param(
            StopRules(), b"abcd\xf0\x9f", ("abcd\ufffd", 6, LENGTH, None), id="cut in a character"
        ),
    ],
)  # fmt: skip
def test_endings(
    stops: StopRules,
    tokens: Iterable[int],
    expected: tuple[str, int, FinishReason | None, str | int | None],
) -> None:
    assert summary(push_all(make_output(stops, max_tokens=6), tokens)) == expected


def test_a_complete_grammar_ends_the_choice() -> None:
    output = make_output(StopRules(strings=("xyz",)))
    assert output.push(DrawnToken(ord("x")), is_complete=True) == Delta(
        0, "x", (ord("x"),), finish_reason=STOP
    )


def test_there_are_no_empty_deltas_and_no_token_is_lost() -> None:
    output = make_output(StopRules(strings=("lo!",)))
    deltas = push_all(output, [*b"hell", *"🙂".encode(), END_TOKEN])
    assert [delta.text for delta in deltas] == ["h", "e", "l", "l🙂", ""]
    assert [len(delta.token_ids) for delta in deltas] == [1, 1, 2, 4, 1]


def test_log_probabilities_come_with_their_tokens() -> None:
    output = make_output()
    first, *rest = "é".encode()
    logprob = TokenLogprob(first, -0.5, ())
    assert output.push(DrawnToken(first, logprob)) is None
    delta = output.push(DrawnToken(rest[0], logprob))
    assert delta is not None
    assert (delta.text, delta.logprobs) == ("é", (logprob, logprob))


def test_end_tokens_may_not_be_drawn_before_the_minimum() -> None:
    output = make_output(StopRules(min_tokens=2, token_ids=frozenset({5})))
    assert set(output.banned) == {5, END_TOKEN}
    push_all(output, b"ab")
    assert output.banned == ()


def test_without_a_tokenizer_there_are_tokens_and_no_text() -> None:
    output = ChoiceOutput(0, rules=OutputRules(StopRules(), 2, None), prompt=())
    assert push_all(output, [256, 7]) == [
        Delta(0, "", (256,)),
        Delta(0, "", (7,), finish_reason=LENGTH),
    ]
