from collections.abc import Sequence

from aspira.llm.detokenizer import Detokenizer
from aspira.testing.toy_tokenizer import ByteTokenizer


class SpaceStrippingTokenizer(ByteTokenizer):
    """As SentencePiece does: a space that leads the decoded text is not there."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return super().decode(token_ids).removeprefix(" ")


def stream(tokens: Sequence[int], detokenizer: Detokenizer) -> list[str]:
    return [*map(detokenizer.push, tokens), detokenizer.flush()]


def test_characters_are_whole() -> None:
    tokens = list("aé🙂b".encode())
    pieces = stream(tokens, Detokenizer(ByteTokenizer()))
    assert [piece for piece in pieces if piece] == ["a", "é", "🙂", "b"]


def test_an_unfinished_character_is_told_at_the_end() -> None:
    pieces = stream([ord("a"), *"🙂".encode()[:3]], Detokenizer(ByteTokenizer()))
    assert pieces == ["a", "", "", "", "\ufffd"]


def test_broken_bytes_are_told_when_they_can_be_nothing_else() -> None:
    pieces = stream([0xE2, 0x82, ord("a")], Detokenizer(ByteTokenizer()))
    assert pieces == ["", "", "\ufffda", ""]


def test_broken_bytes_without_end_do_not_pile_up() -> None:
    detokenizer = Detokenizer(ByteTokenizer())
    pieces = [detokenizer.push(0xFF) for _ in range(500)]
    assert len(detokenizer._window) < 40
    assert sum(map(len, pieces)) > 450
    assert "".join([*pieces, detokenizer.flush()]) == "\ufffd" * 500


def test_a_leading_space_follows_the_prompt() -> None:
    tokenizer = SpaceStrippingTokenizer()
    prompt = tokenizer.encode("Hello")
    assert "".join(stream(list(b" world"), Detokenizer(tokenizer, prompt=prompt))) == " world"
    assert "".join(stream(list(b" world"), Detokenizer(tokenizer))) == "world"


def test_a_character_that_the_prompt_began_is_completed() -> None:
    first, *rest = "🙂".encode()
    assert "".join(stream(rest, Detokenizer(ByteTokenizer(), prompt=[97, first]))) == "🙂"


def test_special_tokens_have_no_text() -> None:
    assert stream([97, 256, 98], Detokenizer(ByteTokenizer())) == ["a", "", "b", ""]
