from pathlib import Path

import pytest

from aspira.contracts.embedding import InputTooLong, TextInput
from aspira.contracts.errors import InvalidArgument
from aspira.llm.encoders.files import find_encoder_files
from aspira.llm.encoders.sentence_files import SentenceRules
from aspira.llm.encoders.text import EncoderText, load_encoder_text
from encoder_models import write_encoder

RULES = SentenceRules(max_tokens=8)


def load(directory: Path, *, rules: SentenceRules = RULES) -> EncoderText:
    write_encoder(directory)
    files = find_encoder_files(directory)
    assert files is not None
    return load_encoder_text(files, rules=rules)


def test_texts_and_token_ids(tmp_path: Path) -> None:
    found = load(tmp_path).encode(["a b", (5, 6), "t"])
    assert found == [(0, 4, 5, 2), (5, 6), (0, 23, 2)]


def test_the_context_is_the_shorter_of_two(tmp_path: Path) -> None:
    assert load(tmp_path).max_tokens == 8
    assert load(tmp_path, rules=SentenceRules(max_tokens=500)).max_tokens == 34
    assert load(tmp_path, rules=SentenceRules()).max_tokens == 34


def test_a_prompt_and_lower_case(tmp_path: Path) -> None:
    text = load(tmp_path, rules=SentenceRules(prompt="a ", is_lowercased=True))
    assert text.encode(["B"]) == [(0, 4, 5, 2)]


def test_what_is_too_long_says_both_numbers(tmp_path: Path) -> None:
    text = load(tmp_path)
    with pytest.raises(InputTooLong, match=r"length is 8 tokens.* input 1 has 12 tokens"):
        text.encode(["a", "a " * 10])
    with pytest.raises(InputTooLong, match="input 0 has 9 tokens"):
        text.encode([tuple(range(9))])
    with pytest.raises(InvalidArgument, match="has 600 characters, and at most 512"):
        text.encode(["a" * 600])


def test_white_space_is_no_token(tmp_path: Path) -> None:
    assert load(tmp_path).encode(["a" + " " * 400 + "b"]) == [(0, 4, 5, 2)]


@pytest.mark.parametrize(
    ("text", "cut", "expected"),
    [
        ("a b c d", 4, (0, 4, 5, 2)),
        ("a b c d", 6, (0, 4, 5, 6, 7, 2)),
        ("a b c d", 2, (0, 4)),
        ("a " * 400, 4, (0, 4, 4, 2)),
        ((4, 5, 6), 2, (4, 5)),
    ],
)
def test_cutting_keeps_what_stands_around_a_text(
    tmp_path: Path, text: TextInput, cut: int, expected: tuple[int, ...]
) -> None:
    assert load(tmp_path).encode([text], cut=cut) == [expected]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ((), "input 0 is empty"),
        ((24,), "outside 0 to 23.*another model's tokenizer"),
        ((-1,), "outside 0 to 23"),
        ("\ud800", "lone surrogates"),
    ],
)
def test_what_is_no_text_of_the_model(tmp_path: Path, text: TextInput, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        load(tmp_path).encode([text])
