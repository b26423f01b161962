"""Turns tokens into text as they come, never half a character.

A token may end inside a character, and what it decodes to may depend on the one before it (a
leading space). So a window of tokens is decoded again with each new one, and what is added to its
text is sent, without replacement characters at the end: the next token may complete them. The
window starts anew behind text that is settled. What is sent adds up to the text of all tokens.
"""

from collections.abc import Sequence

from aspira.llm.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"

_CONTEXT = 4
"""Settled tokens that a window starts with."""

_MAX_WINDOW = 12
"""Settled tokens that may be decoded again, before the window starts anew."""

_MAX_BROKEN_WINDOW = 32
"""The same where the text ends in broken characters, which might go on without end."""

_MAX_UNSETTLED = 3
"""Bytes that an unfinished character has at most, each perhaps a replacement character."""


class Detokenizer:
    """The text of one choice."""

    def __init__(self, tokenizer: Tokenizer, *, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._window = list(prompt[-_CONTEXT:])
        self._num_sent = self._num_settled(self._decode())

    def push(self, token_id: int) -> str:
        """The text that this token settles."""
        self._window.append(token_id)
        text = self._decode()
        settled = self._num_settled(text)
        added = text[self._num_sent : settled]
        self._num_sent = max(self._num_sent, settled)
        num_unsettled = len(text) - settled
        if len(self._window) > (_MAX_BROKEN_WINDOW if num_unsettled else _MAX_WINDOW):
            self._start_anew(num_unsettled=num_unsettled)
        return added

    def flush(self) -> str:
        """What was held back, at the end: an unfinished character stays one."""
        added = self._decode()[self._num_sent :]
        self._num_sent += len(added)
        return added

    def _start_anew(self, *, num_unsettled: int) -> None:
        del self._window[: -_CONTEXT - num_unsettled]
        self._num_sent = max(len(self._decode()) - num_unsettled, 0)

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window) if self._window else ""

    @staticmethod
    def _num_settled(text: str) -> int:
        num_held = len(text) - len(text.rstrip(REPLACEMENT))
        return len(text) - min(num_held, _MAX_UNSETTLED)
