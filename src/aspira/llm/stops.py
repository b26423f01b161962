"""Finds stop strings in text that comes in pieces, holding back no more than could become one."""

from collections.abc import Sequence
from typing import NamedTuple


class StopCheck(NamedTuple):
    """Text that may be sent, and the stop string that ended it, if one did."""

    text: str
    stopped_by: str | None


class StopMatcher:
    """The stop strings of one choice. How the text is cut in pieces makes no difference: the
    string that is complete first counts, the longest if two are at once.
    """

    def __init__(self, strings: Sequence[str], *, include: bool) -> None:
        self._strings = [string for string in strings if string]
        self._include = include
        self._held = ""

    def push(self, text: str) -> StopCheck:
        """What can be sent now that `text` has come. After a stop nothing more is pushed."""
        if not self._strings:
            return StopCheck(text, None)
        text = self._held + text
        found = [(text.index(s) + len(s), -len(s), s) for s in self._strings if s in text]
        if found:
            end, negative_length, string = min(found)
            self._held = ""
            return StopCheck(text[: end if self._include else end + negative_length], string)
        num_held = max(_overlap(text, string=string) for string in self._strings)
        self._held = text[len(text) - num_held :]
        return StopCheck(text[: len(text) - num_held], None)

    def flush(self) -> str:
        """What was held back, which became no stop string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, *, string: str) -> int:
    """The length of the longest beginning of `string` that `text` ends with."""
    longest = min(len(string) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
