"""A call that is forced comes, whatever the model would say, and its arguments fit the schema."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from asgi_exchange import Answer, exchange, post
from language_toys import events_of, serving_language_model

CHAT = "/v1/chat/completions"


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **parameters}}


DIGIT = {"enum": [1, 2, 3]}
FIRST = tool(
    "first",
    parameters={
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}},
        "required": ["at"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"x": {"$ref": "#/$defs/Digit"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            "Digit": DIGIT,
        },
    },
)
SECOND = tool("second")
REQUIRED: Any = "required"


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def ask(tmp_path: Path, **fields: Any) -> Answer:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 250,
        "temperature": 0,
        **fields,
    }

    async def run() -> Answer:
        async with serving_language_model(tmp_path / "m") as server:
            return await exchange(server.application, request=post(CHAT, body=body))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("tools", "choice", "names"),
    [
        ([FIRST], REQUIRED, {"first"}),
        ([FIRST, SECOND], REQUIRED, {"first", "second"}),
        ([FIRST, SECOND], named("first"), {"first"}),
        ([FIRST, SECOND], named("second"), {"second"}),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_forced_call_comes(
    tmp_path: Path, tools: list[Any], choice: Any, names: set[str], is_streamed: bool
) -> None:
    answer = ask(tmp_path, tools=tools, tool_choice=choice, stream=is_streamed)
    if is_streamed:
        deltas = [event["choices"][0] for event in events_of(answer)]
        (calls,) = [c["delta"]["tool_calls"] for c in deltas if "tool_calls" in c["delta"]]
        assert "".join(c["delta"].get("content", "") for c in deltas) == ""
        reason = deltas[-1]["finish_reason"]
    else:
        found = answer.json["choices"][0]
        calls, reason = found["message"]["tool_calls"], found["finish_reason"]
        assert found["message"]["content"] is None
    ((name, arguments),) = [(c["function"]["name"], c["function"]["arguments"]) for c in calls]
    assert (reason, name in names) == ("tool_calls", True)
    if name == "first":
        assert json.loads(arguments)["at"]["x"] in DIGIT["enum"]
    else:
        assert json.loads(arguments) == {}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": REQUIRED}, "tool_choice"),
        ({"tool_choice": named("first")}, "tool_choice"),
        ({"tool_choice": named("third"), "tools": [FIRST]}, "tool_choice"),
        ({"tool_choice": "always", "tools": [FIRST]}, "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": [FIRST]}, "tool_choice"),
        ({"tool_choice": ["required"], "tools": [FIRST]}, "tool_choice"),
        ({"tool_choice": REQUIRED, "tools": [tool("f", parameters={"type": "no type"})]}, None),
        (
            {
                "tool_choice": REQUIRED,
                "tools": [FIRST],
                "response_format": {"type": "json_object"},
            },
            "response_format",
        ),
    ],
)
def test_what_cannot_be_forced_is_refused(
    tmp_path: Path, fields: dict[str, Any], param: str | None
) -> None:
    answer = ask(tmp_path, **fields)
    assert (answer.status, answer.json["error"]["param"]) == (400, param)


def test_a_call_that_is_cut_short_stays_text(tmp_path: Path) -> None:
    choice = ask(tmp_path, tools=[FIRST], tool_choice=REQUIRED, max_tokens=5).json["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"].startswith("{")
    assert "tool_calls" not in choice["message"]
