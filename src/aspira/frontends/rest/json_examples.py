"""Turns the JSON of a classify or regress request into serialized tf.Examples.

A feature's kind follows from how its values are written: `2` makes an int64 feature, `2.0` a float
feature, and the model is not asked which one it wants.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.tensors import Tensor
from aspira.frontends.rest.json_base64 import decode_base64, is_base64
from aspira.frontends.rest.json_debug import debug_text, json_type_name
from aspira.frontends.rest.json_tensors import parse_inference_body
from aspira.wire.examples import serialize_examples

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any

_MAX_INT64 = 2**63 - 1


class ExamplesBody(NamedTuple):
    """A decoded request: a string tensor of shape [n], n at least 1.

    An empty `signature_name` asks for the default signature.
    """

    signature_name: str
    examples: Tensor


def decode_examples_body(body: bytes | memoryview) -> ExamplesBody:
    """The examples of a body, each with the body's context put before it.

    Raises:
        InvalidArgument: not JSON, no examples, or a value that no feature holds.
    """
    signature_name, document, _ = parse_inference_body(body)
    context = _make_example(document["context"]) if "context" in document else None
    examples = [_make_example(value) for value in _checked_examples(document)]
    return ExamplesBody(signature_name, serialize_examples(examples, context=context))


def _checked_examples(document: Mapping[str, object]) -> list[object]:
    examples = document.get("examples")
    if "examples" not in document:
        # The reference says so for regress, too.
        problem = "When method is classify, key 'examples' is expected and was not found"
    elif not isinstance(examples, list):
        problem = "Expecting 'examples' value to be an list/array"
    elif not examples:
        problem = "'examples' value is an empty array"
    else:
        return examples
    raise InvalidArgument(f"JSON Value: {debug_text(document)} {problem}")


def _make_example(value: object) -> Message:
    from tensorflow.core.example import example_pb2

    if not isinstance(value, dict):
        raise InvalidArgument(f"Example must be JSON object but got JSON {json_type_name(value)}")
    example = example_pb2.Example()
    for name, content in value.items():
        values = content if isinstance(content, list) else [content]
        _fill_feature(_add_feature(example, name=name), name=name, values=values)
    return example


def _add_feature(example: Message, *, name: str) -> Message:
    try:
        return example.features.feature[name]
    except UnicodeEncodeError:
        raise InvalidArgument(f"Feature: {shorten(name)} has a name that is not UTF-8") from None


def _fill_feature(feature: Message, *, name: str, values: list[object]) -> None:
    """No values leave a feature of no kind, which models take for one that is missing."""
    expected = None
    elements = []
    for value in values:
        kind = _kind_of(value, name=name)
        if expected not in {None, kind}:
            raise InvalidArgument(
                f"Unexpected element type in feature: {shorten(name)} expecting type: {expected}"
            )
        expected = kind
        elements.append(_element(value, name=name))
    if expected is not None:
        getattr(feature, f"{expected}_list").value.extend(elements)


def _kind_of(value: object, *, name: str) -> str:
    match value:
        case bool() | int():
            return "int64"
        case float():
            return "float"
        case str():
            return "bytes"
    if is_base64(value):
        return "bytes"
    raise InvalidArgument(
        f"Feature: {shorten(name)} has element with unexpected JSON type: {json_type_name(value)}"
    )


def _element(value: object, *, name: str) -> object:
    match value:
        case int():
            if value > _MAX_INT64:
                raise InvalidArgument(
                    f"Feature: {shorten(name)} has uint64_t element. Only int64_t is supported."
                )
            return int(value)
        case str():
            return value.encode("utf-8", "surrogateescape")
        case dict():
            return decode_base64(value)
    return value
