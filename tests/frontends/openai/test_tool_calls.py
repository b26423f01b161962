"""Calls of tools are taken out of the text, wherever it is cut."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asgi_exchange import Answer, exchange, post
from aspira.frontends.openai.tool_calls import ToolCallParser
from language_toys import events_of, serving_language_model

HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
LLAMA = '{"name": "f", "parameters": {"a": 1}}'
CALL = ("f", {"a": 1})
CASES = [
    (HERMES, "", [CALL]),
    (f"Let me see.\n{HERMES}", "Let me see.", [CALL]),
    (f"{HERMES}\n{HERMES}\n", "", [CALL, CALL]),
    (f"{HERMES} so it is", " so it is", [CALL]),
    ("one  two\n", "one  two\n", []),
    ('<tool_call>{"name": "g", "arguments": {}}', "", [("g", {})]),
    ('<tool_call>{"name": "g"}</tool_call>', "", [("g", {})]),
    ("<tool_call>no json</tool_call> x", "<tool_call>no json</tool_call> x", []),
    ('<tool_call>{"name": 7}</tool_call>', '<tool_call>{"name": 7}</tool_call>', []),
    ("a <tool", "a <tool", []),
    ("a < b <tool_cal> c", "a < b <tool_cal> c", []),
    (LLAMA, "", [CALL]),
    ('{"name": "f", "arguments": {"a": 1}}', "", [CALL]),
    (f"<|python_tag|>{LLAMA}; {LLAMA}", "", [CALL, CALL]),
    ('{"name": "f", "arguments": {"a": "b; c"}}', "", [("f", {"a": "b; c"})]),
    (f'{LLAMA} ;{{"name": "f", "parameters": {{"a": "\\";"}}}}', "", [CALL, ("f", {"a": '";'})]),
    (f"{LLAMA}; and so on", f"{LLAMA}; and so on", []),
    (f"{LLAMA}{LLAMA}", f"{LLAMA}{LLAMA}", []),
    ('{"name": "unknown", "parameters": {}}', '{"name": "unknown", "parameters": {}}', []),
    ('{"answer": 42}', '{"answer": 42}', []),
    ("{", "{", []),
    (" hello", " hello", []),
    ("", "", []),
]


def parse(pieces: list[str]) -> tuple[str, list[Any]]:
    parser = ToolCallParser({"f"})
    settled = [*(parser.push(piece) for piece in pieces), parser.flush()]
    calls = [(c.name, json.loads(c.arguments)) for parsed in settled for c in parsed.calls]
    assert len({c.id for parsed in settled for c in parsed.calls}) == len(calls)
    return "".join(parsed.text for parsed in settled), calls


@given(st.sampled_from(CASES), st.lists(st.integers(0, 60), max_size=6))
def test_however_it_is_cut(case: tuple[str, str, list[Any]], cuts: list[int]) -> None:
    text, said, calls = case
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in pairwise(places)]
    assert parse(pieces) == (said, calls)


def test_text_is_not_held_back_without_need() -> None:
    parser = ToolCallParser({"f"})
    assert [parser.push(piece).text for piece in ("Hello", " <b", ">", " <tool")] == [
        "Hello",
        " <b",
        ">",
        "",
    ]


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def ask(tmp_path: Path, **fields: Any) -> Answer:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 90,
        "tools": TOOLS,
        # The toy was taught nothing, so it is made to say so.
        "guided_regex": r'<tool_call>\{"name": "f", "arguments": \{"a": 1\}\}</tool_call>',
        **fields,
    }

    async def run() -> Answer:
        async with serving_language_model(tmp_path / "m") as server:
            request = post("/v1/chat/completions", body=body)
            return await exchange(server.application, request=request)

    return asyncio.run(run())


def test_a_call_is_part_of_the_message(tmp_path: Path) -> None:
    choice = ask(tmp_path).json["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert (call["type"], call["index"]) == ("function", 0)
    assert call["function"] == {"name": "f", "arguments": '{"a":1}'}


def test_a_call_is_streamed(tmp_path: Path) -> None:
    choices = [event["choices"][0] for event in events_of(ask(tmp_path, stream=True))]
    deltas = [choice["delta"] for choice in choices]
    (calls,) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"]["name"] == "f"
    assert "".join(delta.get("content", "") for delta in deltas) == ""
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_tools_that_may_not_be_called_are_not_looked_for(tmp_path: Path) -> None:
    choice = ask(tmp_path, tool_choice="none").json["choices"][0]
    assert choice["message"]["content"].startswith("<tool_call>")
    assert choice["finish_reason"] == "stop"
