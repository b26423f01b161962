"""Tells what a model thinks from what it answers: `<think>...</think>` at the begin of its output.

White space around either part belongs to the form, not to the text.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from aspira.contracts.generation import TokenId
from aspira.frontends.openai.markers import split_settled
from aspira.llm.reasoning_tags import ReasoningTags


class Thought(NamedTuple):
    """What is settled: a part of the reasoning, and a part of the answer."""

    reasoning: str = ""
    answer: str = ""


class _State(Enum):
    UNDECIDED = "it may begin to think"
    THINKING = "within the tags"
    AFTERWARDS = "in the white space after them"
    ANSWERING = "in the answer"


class ReasoningParser:
    """Of one choice. `is_thinking`: the prompt ends within the tags, as some templates have it."""

    def __init__(self, tags: ReasoningTags, *, is_thinking: bool) -> None:
        self._tags = tags
        self._state = _State.THINKING if is_thinking else _State.UNDECIDED
        self._held = ""
        self._has_thought = False
        self._is_counting = is_thinking
        self.num_tokens = 0
        """Of the reasoning, its tags included."""

    def push(self, text: str, *, token_ids: Sequence[TokenId]) -> Thought:
        """Take more of the output."""
        self._count(token_ids)
        self._held += text
        if self._state is _State.UNDECIDED:
            self._decide()
        reasoning = self._take_reasoning() if self._state is _State.THINKING else ""
        return Thought(reasoning, self._take_answer())

    def flush(self) -> Thought:
        """The end of the output: what was held back is a part of where it ended."""
        held, self._held = self._held, ""
        if self._state is _State.THINKING:
            return Thought(self._without_lead(held.rstrip()), "")
        return Thought("", "" if self._state is _State.AFTERWARDS else held)

    def _count(self, token_ids: Sequence[TokenId]) -> None:
        for token_id in token_ids:
            self._is_counting = self._is_counting or token_id == self._tags.begin_id
            self.num_tokens += self._is_counting
            if token_id == self._tags.end_id:
                self._is_counting = False

    def _decide(self) -> None:
        start, tag = self._held.lstrip(), self._tags.begin
        if start.startswith(tag):
            self._held, self._state = start.removeprefix(tag), _State.THINKING
        elif not tag.startswith(start):
            self._state = _State.ANSWERING

    def _take_reasoning(self) -> str:
        before, found, after = self._held.partition(self._tags.end)
        if found:
            self._held, self._state = after, _State.AFTERWARDS
            return self._without_lead(before.rstrip())
        settled, self._held = split_settled(self._held, marker=self._tags.end)
        return self._without_lead(settled)

    def _without_lead(self, text: str) -> str:
        if self._has_thought:
            return text
        text = text.lstrip()
        self._has_thought = bool(text)
        return text

    def _take_answer(self) -> str:
        if self._state is _State.AFTERWARDS:
            self._held = self._held.lstrip()
            if self._held:
                self._state = _State.ANSWERING
        if self._state is not _State.ANSWERING:
            return ""
        answer, self._held = self._held, ""
        return answer
