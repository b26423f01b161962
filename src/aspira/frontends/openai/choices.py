"""Choices as chat completions and as text completions write them, whole and in pieces.

Clients broke on missing keys, so every piece has all of them, null or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from aspira.contracts.generation import Delta, FinishReason, TokenId, TokenLogprob
from aspira.frontends.openai.logprobs import DescribeToken, encode_chat, encode_completion

Choice = dict[str, Any]


@dataclass(slots=True)
class WholeChoice:
    """A choice put together from its deltas."""

    index: int
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stopped_by: str | TokenId | None = None

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.logprobs += delta.logprobs
        self.finish_reason = delta.finish_reason
        self.stopped_by = delta.stopped_by


class ChoiceFormat(Protocol):
    """How one API writes choices; made for one answer."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    piece_object: ClassVar[str]

    def opening(self, index: int, *, prefix: str) -> Choice | None:
        """What comes before a choice's first token, if anything. `prefix` is text to begin with."""
        ...

    def pieces(self, index: int, *, delta: Delta) -> Sequence[Choice]:
        """A delta, each piece to be sent on its own."""
        ...

    def whole(self, choice: WholeChoice) -> Choice:
        """A choice that has ended."""
        ...


class ChatFormat:
    """Of `/v1/chat/completions`."""

    id_prefix: ClassVar[str] = "chatcmpl-"
    whole_object: ClassVar[str] = "chat.completion"
    piece_object: ClassVar[str] = "chat.completion.chunk"

    def __init__(self, describe: DescribeToken, *, has_logprobs: bool) -> None:
        self._describe = describe
        self._has_logprobs = has_logprobs

    def opening(self, index: int, *, prefix: str) -> Choice:
        return _chat_piece(index, delta={"role": "assistant", "content": prefix})

    def pieces(self, index: int, *, delta: Delta) -> list[Choice]:
        found = []
        logprobs = self._encode(delta.logprobs)
        if delta.text or logprobs:
            found.append(_chat_piece(index, delta={"content": delta.text}, logprobs=logprobs))
        if delta.finish_reason is not None:
            last = _chat_piece(index, delta={}, finish_reason=delta.finish_reason.value)
            found.append({**last, "stop_reason": delta.stopped_by})
        return found

    def whole(self, choice: WholeChoice) -> Choice:
        logprobs = self._encode(choice.logprobs)
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": logprobs or ({"content": []} if self._has_logprobs else None),
            "finish_reason": choice.finish_reason.value if choice.finish_reason else None,
            "stop_reason": choice.stopped_by,
        }

    def _encode(self, logprobs: Sequence[TokenLogprob]) -> Choice | None:
        return encode_chat(logprobs, describe=self._describe) if self._has_logprobs else None


class CompletionFormat:
    """Of `/v1/completions`."""

    id_prefix: ClassVar[str] = "cmpl-"
    whole_object: ClassVar[str] = "text_completion"
    piece_object: ClassVar[str] = "text_completion"

    def __init__(self, describe: DescribeToken, *, has_logprobs: bool) -> None:
        self._describe = describe
        self._has_logprobs = has_logprobs
        self._offsets: dict[int, int] = {}

    def opening(self, index: int, *, prefix: str) -> Choice | None:
        return _completion_piece(index, text=prefix) if prefix else None

    def pieces(self, index: int, *, delta: Delta) -> list[Choice]:
        return [
            {
                **_completion_piece(index, text=delta.text),
                "logprobs": self._encode(index, logprobs=delta.logprobs),
                "finish_reason": delta.finish_reason.value if delta.finish_reason else None,
                "stop_reason": delta.stopped_by,
            }
        ]

    def whole(self, choice: WholeChoice) -> Choice:
        return {
            **_completion_piece(choice.index, text=choice.text),
            "logprobs": self._encode(choice.index, logprobs=choice.logprobs),
            "finish_reason": choice.finish_reason.value if choice.finish_reason else None,
            "stop_reason": choice.stopped_by,
        }

    def _encode(self, index: int, *, logprobs: Sequence[TokenLogprob]) -> Choice | None:
        if not self._has_logprobs:
            return None
        encoded, self._offsets[index] = encode_completion(
            logprobs, describe=self._describe, offset=self._offsets.get(index, 0)
        )
        return encoded


def _chat_piece(
    index: int, *, delta: Choice, logprobs: Choice | None = None, finish_reason: str | None = None
) -> Choice:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _completion_piece(index: int, *, text: str) -> Choice:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}
