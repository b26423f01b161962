"""Turns tokens into text as they come, never half a character.

What a token decodes to depends on those before it: it may end inside a character, have a leading
space, or be one byte of a run that is decoded as a whole. So a window of tokens is decoded again
with each new one, and what is added to its text is sent, without replacement characters at the
end, which the next token may complete. The window begins where all characters were whole. What is
sent adds up to the text of all tokens.
"""

from collections.abc import Sequence

from aspira.llm.vocabulary import Vocabulary

REPLACEMENT = "\ufffd"

_CONTEXT = 4
"""Tokens of the prompt that the first window begins with, if no character is cut by that."""

_MAX_WINDOW = 12
"""Tokens that may be decoded again, before the window begins anew at whole characters."""

_MAX_BROKEN_WINDOW = 32
"""The same while there are no whole characters: then what came so far never becomes any."""

_MAX_UNFINISHED = 3
"""Bytes of an unfinished character, each perhaps a replacement character; tokens likewise."""


class Detokenizer:
    """The text of one choice."""

    def __init__(self, vocabulary: Vocabulary, *, prompt: Sequence[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._window = list(prompt[_find_context(prompt, vocabulary=vocabulary) :])
        self._num_whole = len(self._window)  # tokens at the last point of whole characters
        self._num_sent = len(self._decode().rstrip(REPLACEMENT))

    def push(self, token_id: int) -> str:
        """The text that this token settles."""
        self._window.append(token_id)
        text = self._decode()
        settled = len(text.rstrip(REPLACEMENT))
        is_broken = settled < len(text) and len(self._window) > _MAX_BROKEN_WINDOW
        if is_broken:
            settled = len(text) - _MAX_UNFINISHED
        added = text[self._num_sent : settled]
        self._num_sent = max(self._num_sent, settled)
        if is_broken:
            self._begin_anew(-2 * _MAX_UNFINISHED, num_unsent=_MAX_UNFINISHED)
            self._num_whole = 0
        elif settled == len(text):
            if len(self._window) > _MAX_WINDOW:
                self._begin_anew(self._num_whole, num_unsent=0)
            self._num_whole = len(self._window)
        return added

    def flush(self) -> str:
        """What was held back, at the end: an unfinished character stays one."""
        added = self._decode()[self._num_sent :]
        self._num_sent += len(added)
        return added

    def _begin_anew(self, begin: int, *, num_unsent: int) -> None:
        del self._window[:begin]
        self._num_sent = max(len(self._decode()) - num_unsent, 0)

    def _decode(self) -> str:
        return self._vocabulary.decode(self._window) if self._window else ""


def _find_context(prompt: Sequence[int], *, vocabulary: Vocabulary) -> int:
    """Where the first window begins. Were it within a character, a whole run of bytes might be
    decoded as broken, those at the prompt's end too, and be told as if it were output.
    """
    begin = max(len(prompt) - _CONTEXT, 0)
    earliest = max(begin - _MAX_UNFINISHED, 0)
    while begin > earliest and _goes_on(vocabulary.token_bytes(prompt[begin])):
        begin -= 1
    return begin


def _goes_on(spelled: bytes | None) -> bool:
    """Whether a token begins within a character."""
    return spelled is not None and b"\x80" <= spelled[:1] < b"\xc0"
