"""However tokens and pieces are cut, the text is the same."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from aspira.llm.detokenizer import Detokenizer
from aspira.llm.stops import StopMatcher
from aspira.testing.toy_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()
TEXTS = st.text(st.sampled_from("ab é🙂\n\ufffd中"), max_size=60)
SMALL_TEXTS = st.text("abc", max_size=30)


class PieceTokenizer:
    """Tokens of several bytes, cut anywhere, inside characters too."""

    vocab_size = 1000
    eos_token_ids: frozenset[int] = frozenset()

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def token_bytes(self, token_id: int) -> bytes | None:
        return self._pieces[token_id]

    def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(self._pieces[t] for t in token_ids).decode("utf-8", "replace")


@st.composite
def cut_texts(draw: st.DrawFn) -> list[bytes]:
    data = draw(TEXTS).encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=20)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


@given(cut_texts())
@settings(max_examples=400, deadline=None)
def test_the_stream_adds_up_to_the_text(pieces: list[bytes]) -> None:
    tokenizer = PieceTokenizer(pieces)
    detokenizer = Detokenizer(tokenizer)
    tokens = range(len(pieces))
    streamed = [detokenizer.push(token) for token in tokens]
    assert "".join([*streamed, detokenizer.flush()]) == tokenizer.decode(tokens)


@given(st.lists(st.integers(0, 255), max_size=80))
@settings(max_examples=400, deadline=None)
def test_so_do_bytes_that_are_no_text(tokens: list[int]) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    streamed = [detokenizer.push(token) for token in tokens]
    assert "".join([*streamed, detokenizer.flush()]) == TOKENIZER.decode(tokens)


@given(TEXTS, st.data())
@settings(max_examples=200, deadline=None)
def test_no_piece_ends_in_half_a_character(text: str, data: st.DataObject) -> None:
    text = text.replace("\ufffd", "")
    detokenizer = Detokenizer(TOKENIZER)
    prompt = data.draw(TEXTS).replace("\ufffd", "")
    detokenizer = Detokenizer(TOKENIZER, prompt=TOKENIZER.encode(prompt))
    pieces = [detokenizer.push(token) for token in text.encode()]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == text


def stream_stops(
    pieces: Sequence[str], stops: list[str], *, include: bool
) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include=include)
    sent = ""
    for piece in pieces:
        text, stopped_by = matcher.push(piece)
        sent += text
        if stopped_by is not None:
            return sent, stopped_by
    return sent + matcher.flush(), None


@given(
    SMALL_TEXTS,
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    st.sets(st.integers(0, 30)),
    st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_stop_strings_are_found_wherever_the_text_is_cut(
    text: str, stops: list[str], cuts: set[int], include: bool
) -> None:
    points = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(points)]
    one_by_one = stream_stops(list(text), stops, include=include)
    assert stream_stops(pieces, stops, include=include) == one_by_one
    sent, stopped_by = one_by_one
    if stopped_by is None:
        assert sent == text
        assert not any(stop in text for stop in stops)
    else:
        assert text.startswith(sent if include else sent + stopped_by)
        if not include:
            assert not any(stop in sent for stop in stops)
