"""The parts of an assistant's message as they come: reasoning, text, and calls of tools."""

from typing import Any, NamedTuple

from aspira.contracts.generation import Delta, TokenId
from aspira.frontends.openai.reasoning import ReasoningParser
from aspira.frontends.openai.requests import GenerationOrder
from aspira.frontends.openai.tool_calls import ToolCall, ToolCallParser
from aspira.llm.model_text import TokenPrompt
from aspira.llm.reasoning_tags import ReasoningTags


class MessageParts(NamedTuple):
    """What a message gained, calls as the API has them."""

    reasoning: str
    text: str
    calls: list[dict[str, Any]]


class MessageParsers:
    """Of all choices of one answer."""

    def __init__(self, tags: ReasoningTags | None, *, order: GenerationOrder) -> None:
        # A grammar leaves no room for thoughts, even where the prompt invites to them.
        self._tags = None if order.grammar is not None else tags
        self._is_reasoning_told = order.has_reasoning
        self._tool_names = order.tool_names
        self._is_thinking = False
        self._reasoning: dict[int, ReasoningParser] = {}
        self._tools: dict[int, ToolCallParser] = {}
        self._num_calls: dict[int, int] = {}

    @property
    def num_reasoning_tokens(self) -> int:
        return sum(parser.num_tokens for parser in self._reasoning.values())

    def begin(self, prompt: TokenPrompt) -> None:
        """The prompt, which may end within the tags of reasoning."""
        self._is_thinking = self._tags is not None and self._tags.is_open(prompt)

    def has_calls(self, index: int) -> bool:
        """Whether a choice has called a tool."""
        return self._num_calls.get(index, 0) > 0

    def push(self, index: int, *, delta: Delta) -> MessageParts:
        """What a choice gained by a delta."""
        is_end = delta.finish_reason is not None
        reasoning, text = self._take_reasoning(
            index, text=delta.text, token_ids=delta.token_ids, is_end=is_end
        )
        text, calls = self._take_calls(index, text=text, is_end=is_end)
        return MessageParts(reasoning if self._is_reasoning_told else "", text, calls)

    def _take_reasoning(
        self, index: int, *, text: str, token_ids: tuple[TokenId, ...], is_end: bool
    ) -> tuple[str, str]:
        if self._tags is None:
            return "", text
        parser = self._reasoning.get(index)
        if parser is None:
            parser = ReasoningParser(self._tags, is_thinking=self._is_thinking)
            self._reasoning[index] = parser
        thoughts = [parser.push(text, token_ids=token_ids)]
        if is_end:
            thoughts.append(parser.flush())
        return (
            "".join(thought.reasoning for thought in thoughts),
            "".join(thought.answer for thought in thoughts),
        )

    def _take_calls(
        self, index: int, *, text: str, is_end: bool
    ) -> tuple[str, list[dict[str, Any]]]:
        if not self._tool_names:
            return text, []
        parser = self._tools.setdefault(index, ToolCallParser(self._tool_names))
        settled = [parser.push(text)]
        if is_end:
            settled.append(parser.flush())
        begin = self._num_calls.get(index, 0)
        calls = [call for parsed in settled for call in parsed.calls]
        self._num_calls[index] = begin + len(calls)
        encoded = [_encode_call(call, index=begin + i) for i, call in enumerate(calls)]
        return "".join(parsed.text for parsed in settled), encoded


def _encode_call(call: ToolCall, *, index: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"index": index, "id": call.id, "type": "function", "function": function}
