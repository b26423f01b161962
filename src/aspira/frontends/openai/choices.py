"""Choices as chat completions and as text completions write them, whole and in pieces.

Clients broke on missing keys, so every piece has all of them, null or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from aspira.contracts.generation import Delta, FinishReason, TokenId, TokenLogprob
from aspira.frontends.openai.logprobs import encode_chat, encode_completion
from aspira.frontends.openai.message_parts import MessageParsers
from aspira.frontends.openai.requests import GenerationOrder
from aspira.llm.model_text import TokenPrompt
from aspira.llm.servable import LanguageModel

Choice = dict[str, Any]


@dataclass(slots=True)
class WholeChoice:
    """A choice put together from its deltas."""

    index: int
    text: str = ""
    token_ids: list[TokenId] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stopped_by: str | TokenId | None = None

    def add(self, delta: Delta) -> None:
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs
        self.finish_reason = delta.finish_reason
        self.stopped_by = delta.stopped_by


class ChoiceFormat(Protocol):
    """How one API writes choices; made for one answer."""

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    piece_object: ClassVar[str]

    @property
    def num_reasoning_tokens(self) -> int:
        """Of all choices, so far."""
        ...

    def begin(self, prompts: Sequence[TokenPrompt]) -> None:
        """The prompts, before any of the following."""
        ...

    def opening(self, index: int, *, prefix: str) -> Choice | None:
        """What comes before a choice's first token, if anything. `prefix` is text to begin with."""
        ...

    def pieces(self, index: int, *, delta: Delta) -> Sequence[Choice]:
        """A delta, each piece to be sent on its own."""
        ...

    def whole(self, choice: WholeChoice) -> Choice:
        """A choice that has ended."""
        ...


class MakeFormat(Protocol):
    """A format of choices, for one answer."""

    def __call__(self, model: LanguageModel, *, order: GenerationOrder) -> ChoiceFormat: ...


class ChatFormat:
    """Of `/v1/chat/completions`."""

    id_prefix: ClassVar[str] = "chatcmpl-"
    whole_object: ClassVar[str] = "chat.completion"
    piece_object: ClassVar[str] = "chat.completion.chunk"

    def __init__(self, model: LanguageModel, *, order: GenerationOrder) -> None:
        self._describe = model.describe_token
        self._has_logprobs = order.has_logprobs
        self._messages = MessageParsers(model.reasoning_tags, order=order)

    @property
    def num_reasoning_tokens(self) -> int:
        return self._messages.num_reasoning_tokens

    def begin(self, prompts: Sequence[TokenPrompt]) -> None:
        (prompt,) = prompts
        self._messages.begin(prompt)

    def opening(self, index: int, *, prefix: str) -> Choice:
        return _chat_piece(index, delta={"role": "assistant", "content": prefix})

    def pieces(self, index: int, *, delta: Delta) -> list[Choice]:
        found = []
        logprobs = self._encode(delta.logprobs)
        gained = self._messages.push(index, delta=delta)
        if gained.reasoning:
            found.append(_chat_piece(index, delta={"reasoning_content": gained.reasoning}))
        if gained.text or logprobs:
            found.append(_chat_piece(index, delta={"content": gained.text}, logprobs=logprobs))
        if gained.calls:
            found.append(_chat_piece(index, delta={"tool_calls": gained.calls}))
        if delta.finish_reason is not None:
            has_calls = self._messages.has_calls(index)
            reason = _reason(delta.finish_reason, has_calls=has_calls)
            last = _chat_piece(index, delta={}, finish_reason=reason)
            found.append({**last, "stop_reason": delta.stopped_by})
        return found

    def whole(self, choice: WholeChoice) -> Choice:
        logprobs = self._encode(choice.logprobs)
        delta = Delta(
            choice.index, choice.text, tuple(choice.token_ids), finish_reason=choice.finish_reason
        )
        gained = self._messages.push(choice.index, delta=delta)
        message: Choice = {"role": "assistant", "content": gained.text, "refusal": None}
        if gained.reasoning:
            message["reasoning_content"] = gained.reasoning
        if gained.calls:
            message |= {"content": gained.text or None, "tool_calls": gained.calls}
        return {
            "index": choice.index,
            "message": message,
            "logprobs": logprobs or ({"content": []} if self._has_logprobs else None),
            "finish_reason": _reason(choice.finish_reason, has_calls=bool(gained.calls)),
            "stop_reason": choice.stopped_by,
        }

    def _encode(self, logprobs: Sequence[TokenLogprob]) -> Choice | None:
        return encode_chat(logprobs, describe=self._describe) if self._has_logprobs else None


class CompletionFormat:
    """Of `/v1/completions`."""

    id_prefix: ClassVar[str] = "cmpl-"
    whole_object: ClassVar[str] = "text_completion"
    piece_object: ClassVar[str] = "text_completion"

    def __init__(self, model: LanguageModel, *, order: GenerationOrder) -> None:
        self._describe = model.describe_token
        self._has_logprobs = order.has_logprobs
        self._offsets: dict[int, int] = {}

    @property
    def num_reasoning_tokens(self) -> int:
        return 0

    def begin(self, prompts: Sequence[TokenPrompt]) -> None:
        """A text has no parts that its prompt could tell of."""

    def opening(self, index: int, *, prefix: str) -> Choice | None:
        return _completion_piece(index, text=prefix) if prefix else None

    def pieces(self, index: int, *, delta: Delta) -> list[Choice]:
        return [
            {
                **_completion_piece(index, text=delta.text),
                "logprobs": self._encode(index, logprobs=delta.logprobs),
                "finish_reason": _reason(delta.finish_reason),
                "stop_reason": delta.stopped_by,
            }
        ]

    def whole(self, choice: WholeChoice) -> Choice:
        return {
            **_completion_piece(choice.index, text=choice.text),
            "logprobs": self._encode(choice.index, logprobs=choice.logprobs),
            "finish_reason": _reason(choice.finish_reason),
            "stop_reason": choice.stopped_by,
        }

    def _encode(self, index: int, *, logprobs: Sequence[TokenLogprob]) -> Choice | None:
        if not self._has_logprobs:
            return None
        encoded, self._offsets[index] = encode_completion(
            logprobs, describe=self._describe, offset=self._offsets.get(index, 0)
        )
        return encoded


def _reason(reason: FinishReason | None, *, has_calls: bool = False) -> str | None:
    if reason is FinishReason.STOP and has_calls:
        return "tool_calls"
    return None if reason is None else reason.value


def _chat_piece(
    index: int, *, delta: Choice, logprobs: Choice | None = None, finish_reason: str | None = None
) -> Choice:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}


def _completion_piece(index: int, *, text: str) -> Choice:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}
