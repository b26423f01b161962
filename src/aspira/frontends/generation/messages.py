"""Chat messages of a request as the model's template knows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from aspira.contracts.errors import shorten
from aspira.frontends.generation.fields import BadField

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MAX_MESSAGES = 4096
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def decode_messages(values: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Messages with text content; what else they have is passed on.

    Raises:
        BadField: there are none or too many, or one is malformed.
    """
    if not values:
        raise BadField("messages is empty; send at least one message.", param="messages")
    if len(values) > _MAX_MESSAGES:
        raise BadField(f"messages has more than {_MAX_MESSAGES} messages.", param="messages")
    return [_decode_message(value, name=f"messages[{i}]") for i, value in enumerate(values)]


def decode_tools(values: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Tools as they are; each must be a function with a name.

    Raises:
        BadField: one is not.
    """
    for index, value in enumerate(values):
        function = value.get("function") if isinstance(value, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadField(f"tools[{index}] must have a function with a name.", param="tools")
    return list(values)


def _decode_message(value: object, *, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadField(f"{name} must be an object.", param=name)
    role = value.get("role")
    if role not in _ROLES:
        raise BadField(f"{name}.role must be one of {', '.join(_ROLES)}.", param=name)
    message = {
        **value,
        "role": "system" if role == "developer" else role,
        "content": _decode_content(value.get("content"), name=f"{name}.content"),
    }
    calls = value.get("tool_calls")
    if calls is None and value.get("content") is None and value.get("function_call") is None:
        raise BadField(f"{name}.content is missing.", param=f"{name}.content")
    if calls is not None:
        message["tool_calls"] = _decode_calls(calls, name=f"{name}.tool_calls")
    return message


def _decode_content(content: object, *, name: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadField(f"{name} must be a string or an array of parts.", param=name)
    return "".join(_decode_part(part, name=f"{name}[{i}]") for i, part in enumerate(content))


def _decode_part(part: object, *, name: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise BadField(f"{name} must be an object.", param=name)
    kind = part.get("type")
    if kind not in _TEXT_PARTS:
        raise BadField(
            f"{name} is of type {shorten(str(kind))!r}, and this model takes text alone.",
            param=name,
        )
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise BadField(f"{name}.text must be a string.", param=name)
    return text


def _decode_calls(calls: object, *, name: str) -> list[Mapping[str, Any]]:
    """Templates want arguments as objects, where the API has them as text."""
    if not isinstance(calls, list):
        raise BadField(f"{name} must be an array.", param=name)
    decoded: list[Mapping[str, Any]] = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadField(f"{name}[{index}] must have a function with a name.", param=name)
        arguments = _parse_arguments(function.get("arguments"))
        decoded.append({**call, "function": {**function, "arguments": arguments}})
    return decoded


def _parse_arguments(arguments: object) -> object:
    if not isinstance(arguments, str):
        return arguments or {}
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        # A model wrote them, and may have written what is no JSON; so it said.
        return arguments
