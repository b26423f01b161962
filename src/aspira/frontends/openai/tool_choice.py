"""Which tools a model may call, and the grammar that leaves it no choice where one is forced.

A forced call is written as one JSON object, `{"name": "f", "arguments": {}}`, whatever form the
model was taught: every tokenizer can write it, and the arguments have to match the tool's schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aspira.contracts.errors import shorten
from aspira.contracts.generation import Grammar
from aspira.frontends.generation.fields import BadField, Fields
from aspira.frontends.generation.messages import decode_tools
from aspira.frontends.generation.options import encode_schema

_PARAM = "tool_choice"
_TOOLS = "tools"
_REFERENCES = ("$ref", "$dynamicRef")

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The tools that the template is told of, and what the whole output is if a call is forced."""

    tools: Tools
    grammar: Grammar | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool["function"]["name"] for tool in self.tools)


def decode_tool_choice(fields: Fields) -> ToolChoice:
    """Of a chat's `tools` and `tool_choice`.

    Raises:
        BadField: either is wrong, or they do not fit each other.
    """
    choice: object = fields.value(_PARAM)
    if choice == "none":
        fields.ignore("tools")
        return ToolChoice(())
    tools = decode_tools(fields.list("tools"))
    if choice in (None, "auto"):
        return ToolChoice(tools)
    if not tools:
        raise BadField("tool_choice asks for a call, and there are no tools.", param=_PARAM)
    if choice == "required":
        return ToolChoice(tools, _make_grammar(tools))
    name = _forced_name(choice)
    forced = [tool for tool in tools if tool["function"]["name"] == name]
    if not forced:
        raise BadField(f"tool_choice names {shorten(name)!r}, which is not in tools.", param=_PARAM)
    return ToolChoice(tools, _make_grammar(forced))


def _forced_name(choice: object) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise BadField(
            "tool_choice must be none, auto, required, or a function with a name.", param=_PARAM
        )
    return name


def _make_grammar(tools: Tools) -> Grammar:
    """One call of one of the tools. Each schema keeps its references, which its new place moves."""
    schemas, calls = {}, []
    for index, tool in enumerate(tools):
        place = f"#/$defs/tool{index}"
        parameters = tool["function"].get("parameters") or _no_parameters()
        # What can be encoded is not nested deeply.
        encode_schema(parameters, param=_TOOLS)
        schemas[f"tool{index}"] = _move_references(parameters, to=place)
        calls.append(
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool["function"]["name"]},
                    "arguments": {"$ref": place},
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    return encode_schema({"$defs": schemas, "anyOf": calls}, param=_TOOLS)


def _no_parameters() -> dict[str, Any]:
    """The schema of a tool that was described without one."""
    return {"type": "object", "properties": {}, "additionalProperties": False}


def _move_references(schema: object, *, to: str) -> object:
    """`#/$defs/x` within a schema is below `to` once the schema is there itself."""
    if isinstance(schema, list):
        return [_move_references(value, to=to) for value in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: to + value[1:]
        if name in _REFERENCES and isinstance(value, str) and value.startswith("#")
        else _move_references(value, to=to)
        for name, value in schema.items()
    }
