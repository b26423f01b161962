"""What a model thinks is told apart from what it answers, wherever the text is cut."""

import asyncio
import json
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi_exchange import Answer, exchange, post
from aspira.frontends.openai.reasoning import ReasoningParser
from aspira.llm.reasoning_tags import ReasoningTags, find_reasoning_tags
from aspira.llm.runner import Logits
from aspira.testing.toy_decoder import Slots, ToyDecoder
from aspira.testing.toy_tokenizer import END_TOKEN, ByteTokenizer
from language_toys import MAX_CONTEXT, ByteText, ToySource, events_of, serving_language_model

BEGIN_ID, END_ID = 254, 255  # no byte of UTF-8
TAGS = ReasoningTags("<think>", "</think>", BEGIN_ID, END_ID)


def encode(text: str) -> list[int]:
    """Bytes are tokens, and each tag is one."""
    tagged = text.encode().replace(b"<think>", b"\xfe").replace(b"</think>", b"\xff")
    return list(tagged)


def decode(tokens: list[int]) -> bytes:
    return bytes(tokens).replace(b"\xfe", b"<think>").replace(b"\xff", b"</think>")


# The output, whether the prompt began the reasoning, the reasoning, the answer.
CASES = [
    ("<think>\nso it is\n</think>\n\nYes.", False, "so it is", "Yes."),
    (" <think>a</think>b", False, "a", "b"),
    ("<think>a < b </th </think>c", False, "a < b </th", "c"),
    ("<think></think>\n\nYes.", False, "", "Yes."),
    ("<think>never ends ", False, "never ends", ""),
    ("<think>", False, "", ""),
    ("Yes.", False, "", "Yes."),
    (" Yes <think> no", False, "", " Yes <think> no"),
    ("<thin", False, "", "<thin"),
    ("", False, "", ""),
    ("\nwell\n</think>\nYes.", True, "well", "Yes."),
    ("well", True, "well", ""),
    ("</think>Yes", True, "", "Yes"),
]


@given(st.sampled_from(CASES), st.lists(st.integers(0, 60), max_size=6))
def test_however_it_is_cut(case: tuple[str, bool, str, str], cuts: list[int]) -> None:
    text, is_thinking, reasoning, answer = case
    parser = ReasoningParser(TAGS, is_thinking=is_thinking)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    thoughts = [parser.push(text[b:e], token_ids=()) for b, e in pairwise(places)]
    thoughts.append(parser.flush())
    assert "".join(thought.reasoning for thought in thoughts) == reasoning
    assert "".join(thought.answer for thought in thoughts) == answer


def test_nothing_is_held_back_without_need() -> None:
    parser = ReasoningParser(TAGS, is_thinking=False)
    pieces = ["<think>", "so", " it", " </", "b", "</think>", "\n", "Y", "es"]
    thoughts = [parser.push(piece, token_ids=()) for piece in pieces]
    assert [t.reasoning for t in thoughts] == ["", "so", " it", "", " </b", "", "", "", ""]
    assert [t.answer for t in thoughts] == [""] * 7 + ["Y", "es"]


class TaggedTokenizer(ByteTokenizer):
    """See `encode`."""

    def encode(self, text: str) -> list[int]:
        return encode(text)

    def decode(self, token_ids: Any) -> str:
        return decode([t for t in token_ids if t < END_TOKEN]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes | None:
        return decode([token_id]) if token_id < END_TOKEN else None


class SilentTokenizer(TaggedTokenizer):
    """Its tags are special: they are no text."""

    def token_bytes(self, token_id: int) -> bytes | None:
        return None if token_id in {BEGIN_ID, END_ID} else super().token_bytes(token_id)


@pytest.mark.parametrize(
    ("vocabulary", "tags"),
    [(TaggedTokenizer(), TAGS), (ByteTokenizer(), None), (SilentTokenizer(), None)],
)
def test_tags_are_found_where_the_model_was_taught_them(
    vocabulary: ByteTokenizer, tags: ReasoningTags | None
) -> None:
    assert find_reasoning_tags(vocabulary) == tags


class TaggedText(ByteText):
    vocabulary = TaggedTokenizer()

    def encode(self, prompt: Any) -> tuple[int, ...]:
        return tuple(encode(bytes(super().encode(prompt)).decode()))


class ScriptedDecoder(ToyDecoder):
    """Says a text after a prompt of known length."""

    def __init__(self, script: str, *, num_prompt: int) -> None:
        super().__init__(num_blocks=512, max_context=MAX_CONTEXT)
        self._script = [*encode(script), END_TOKEN]
        self._num_prompt = num_prompt

    def _logits_after(self, stored: Slots) -> Logits:
        logits = super()._logits_after(stored)
        index = len(stored) - self._num_prompt
        if 0 <= index < len(self._script):
            logits[self._script[index]] = 100.0
        return logits


@dataclass
class ScriptedSource(ToySource):
    script: str = ""
    num_prompt: int = 0
    text: ByteText = field(default_factory=TaggedText)

    def make_runner(self, *, cache_mib: int) -> ScriptedDecoder:
        return ScriptedDecoder(self.script, num_prompt=self.num_prompt)


def chat(tmp_path: Path, *, says: str, prompt: str = "hi", **fields: Any) -> Answer:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        **fields,
    }
    source = ScriptedSource(script=says, num_prompt=len(encode(prompt)))

    async def run() -> Answer:
        async with serving_language_model(tmp_path / "m", source=source) as server:
            request = post("/v1/chat/completions", body=body)
            return await exchange(server.application, request=request)

    return asyncio.run(run())


SAYS = "<think>\nso\n</think>\n\nYes."


@pytest.mark.parametrize(
    ("says", "prompt"), [(SAYS, "hi"), (SAYS.removeprefix("<think>"), "hi<think>")]
)
def test_reasoning_is_a_field_of_the_message(tmp_path: Path, says: str, prompt: str) -> None:
    body = chat(tmp_path, says=says, prompt=prompt).json
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("so", "Yes.")
    details = body["usage"]["completion_tokens_details"]
    assert details["reasoning_tokens"] == len(encode(says[: says.index("</think>") + 8]))


def test_reasoning_is_streamed_before_the_answer(tmp_path: Path) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *events, last = events_of(chat(tmp_path, says=SAYS, **options))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "so"
    assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."
    is_answer = [bool(delta.get("content")) for delta in deltas]
    assert not any("reasoning_content" in d for d in deltas[is_answer.index(True) :])
    assert last["usage"]["completion_tokens_details"]["reasoning_tokens"] == 6


@pytest.mark.parametrize(
    ("fields", "prompt", "expected"),
    [
        ({"include_reasoning": False}, "hi", {"content": "Yes."}),
        ({"max_tokens": 3}, "hi", {"content": "", "reasoning_content": "s"}),
        ({}, "<think></think>hi", {"content": "Yes.", "reasoning_content": "so"}),
        # A grammar leaves no room for thoughts, so what it lets through is the answer.
        ({"guided_regex": "Yes."}, "hi<think>", {"content": "Yes."}),
    ],
)
def test_what_is_reasoning_depends(
    tmp_path: Path, fields: dict[str, Any], prompt: str, expected: dict[str, str]
) -> None:
    says = "Yes." if "guided_regex" in fields else SAYS
    message = chat(tmp_path, says=says, prompt=prompt, **fields).json["choices"][0]["message"]
    parts = {name: message[name] for name in ("content", "reasoning_content") if name in message}
    assert parts == expected


def test_a_call_after_reasoning_is_found(tmp_path: Path) -> None:
    says = '<think>so</think><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    tools = [{"type": "function", "function": {"name": "f"}}]
    choice = chat(tmp_path, says=says, tools=tools).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning_content"] == "so"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "f"


def test_the_template_gets_what_was_thought_and_how_much_to_think(tmp_path: Path) -> None:
    seen: list[Any] = []

    class NotingText(TaggedText):
        def encode(self, prompt: Any) -> tuple[int, ...]:
            seen.append(prompt)
            return super().encode(prompt)

    messages = [
        {"role": "assistant", "content": "Yes.", "reasoning_content": "so"},
        {"role": "user", "content": "hi"},
    ]
    body = {
        "model": "m",
        "messages": messages,
        "max_tokens": 1,
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
    }

    async def run() -> None:
        source = ToySource(text=NotingText())
        async with serving_language_model(tmp_path / "m", source=source) as server:
            request = post("/v1/chat/completions", body=body)
            answer = await exchange(server.application, request=request)
            assert answer.status == 200, json.loads(answer.body)

    asyncio.run(run())
    prompt = seen[-1]
    assert prompt.messages[0]["reasoning_content"] == "so"
    assert prompt.variables == {"reasoning_effort": "low", "enable_thinking": False}
