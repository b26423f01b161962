import pytest

from aspira.llm.stops import StopMatcher


def feed(
    pieces: list[str], stops: list[str], *, include: bool = False
) -> tuple[list[str], str | None]:
    """What is sent for each piece, the flush last, and the stop."""
    matcher = StopMatcher(stops, include=include)
    sent = []
    for piece in pieces:
        text, stopped_by = matcher.push(piece)
        sent.append(text)
        if stopped_by is not None:
            return sent, stopped_by
    return [*sent, matcher.flush()], None


@pytest.mark.parametrize(
    ("pieces", "stops", "sent", "stopped_by"),
    [
        pytest.param(["ab", "c"], [], ["ab", "c", ""], None, id="no stops"),
        pytest.param(["one two"], ["two"], ["one "], "two", id="in one piece"),
        pytest.param(["one t", "wo"], ["two"], ["one ", ""], "two", id="across pieces"),
        pytest.param(["one t", "en"], ["two"], ["one ", "ten", ""], None, id="a false start"),
        pytest.param(["one tw"], ["two"], ["one ", "tw"], None, id="flushed at the end"),
        pytest.param(["aab", "c"], ["aabc"], ["", ""], "aabc", id="all of it"),
        pytest.param(["aaab"], ["aab"], ["a"], "aab", id="overlapping itself"),
        pytest.param(["aa", "ab"], ["aab"], ["", "a"], "aab", id="overlapping across pieces"),
        pytest.param(["x END y"], ["y", "END"], ["x "], "END", id="the first complete one"),
        pytest.param(["xabc"], ["bc", "abc"], ["x"], "abc", id="the longest at once"),
        pytest.param(["xabc"], ["abcd", "b"], ["xa"], "b", id="a short one inside a long one"),
        pytest.param(["\n", "\n"], ["\n\n"], ["", ""], "\n\n", id="newlines"),
    ],
)
def test_stop_strings(
    pieces: list[str], stops: list[str], sent: list[str], stopped_by: str | None
) -> None:
    assert feed(pieces, stops) == (sent, stopped_by)


def test_the_stop_string_is_included_on_request() -> None:
    assert feed(["one t", "wo three"], ["two"], include=True) == (["one ", "two"], "two")
