"""Takes calls of tools out of a text as it comes, in the forms that models were taught.

    <tool_call>{"name": "f", "arguments": {}}</tool_call>     anywhere: Hermes, Qwen, SmolLM
    {"name": "f", "parameters": {}}                           the whole text: Llama 3
    {"name": "f", "arguments": {}}                            the same: calls that were forced

What looks like a call and is none stays text. The forms without tags count only for tools of the
request, since an answer may well be a JSON object.
"""

import json
import re
import secrets
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from aspira.frontends.openai.markers import split_settled

_BEGIN, _END = "<tool_call>", "</tool_call>"
_PYTHON_TAG = "<|python_tag|>"
_SEPARATOR = re.compile(r"\s*;\s*")
_DECODER = json.JSONDecoder()


class ToolCall(NamedTuple):
    """A call. `arguments` is a JSON object as text, as the API has it."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Parsed:
    """What is settled: text for the reader, and calls."""

    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)


class ToolCallParser:
    """Of one choice. `names` are the request's tools."""

    def __init__(self, names: AbstractSet[str]) -> None:
        self._names = names
        self._held = ""
        self._is_in_call = False
        self._has_begun = False
        self._has_called = False

    def push(self, text: str) -> Parsed:
        """Take more of the text."""
        self._held += text
        parsed = Parsed()
        if not self._has_begun and self._may_be_object():
            return parsed
        while self._step(parsed):
            pass
        return parsed

    def flush(self) -> Parsed:
        """The end of the text: what was held back turns out to be a call, or text."""
        held, self._held = self._held, ""
        if self._is_in_call:
            return _settle(held, otherwise=_BEGIN + held)
        if self._has_begun:
            is_space_after_calls = self._has_called and not held.strip()
            return Parsed("" if is_space_after_calls else held)
        return self._settle_object(held)

    def _may_be_object(self) -> bool:
        start = self._held.lstrip()
        if not start or _PYTHON_TAG.startswith(start) or start.startswith((_PYTHON_TAG, "{")):
            return True
        self._has_begun = True
        return False

    def _step(self, parsed: Parsed) -> bool:
        """Settle what can be settled next; False if nothing can."""
        marker = _END if self._is_in_call else _BEGIN
        before, found, after = self._held.partition(marker)
        if not found:
            if not self._is_in_call:
                settled, self._held = split_settled(self._held, marker=_BEGIN)
                parsed.text += settled
            return False
        self._held = after
        if self._is_in_call:
            call = _settle(before, otherwise=_BEGIN + before + _END)
            parsed.text += call.text
            parsed.calls += call.calls
            self._has_called |= bool(call.calls)
        else:
            parsed.text += before.rstrip()
        self._is_in_call = not self._is_in_call
        return True

    def _settle_object(self, held: str) -> Parsed:
        parts = _split_values(held.strip().removeprefix(_PYTHON_TAG).lstrip())
        calls = [_parse_call(part, keys=("parameters", "arguments")) for part in parts]
        found = [call for call in calls if call is not None and call.name in self._names]
        return Parsed("", found) if found and len(found) == len(parts) else Parsed(held)


def _split_values(text: str) -> list[str]:
    """The JSON values of a text that is nothing but such, with semicolons between them; else none.

    Semicolons within strings separate nothing: an argument may be a program.
    """
    parts: list[str] = []
    begin = 0
    while True:
        try:
            _, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            return []
        parts.append(text[begin:end])
        separator = _SEPARATOR.match(text, end)
        if separator is None:
            return parts if end == len(text) else []
        begin = separator.end()


def _settle(text: str, *, otherwise: str) -> Parsed:
    call = _parse_call(text, keys=("arguments",))
    return Parsed(otherwise) if call is None else Parsed("", [call])


def _parse_call(text: str, *, keys: tuple[str, ...]) -> ToolCall | None:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments: object = next((value[key] for key in keys if key in value), {})
    if not isinstance(arguments, dict):
        return None
    return ToolCall(
        f"call_{secrets.token_hex(12)}", value["name"], orjson.dumps(arguments).decode()
    )
