"""Bodies of classify and regress as the examples a model sees, and refusals in exact words."""

import math
from typing import Any

import pytest
from tensorflow.core.example import example_pb2

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.tensors import DataType, data_type_of
from aspira.frontends.rest.json_examples import decode_examples_body


def examples_of(body: str) -> list[example_pb2.Example]:
    tensor = decode_examples_body(body.encode()).examples
    assert data_type_of(tensor) is DataType.STRING
    return [example_pb2.Example.FromString(serialized) for serialized in tensor]


def feature_of(content: str) -> Any:
    (example,) = examples_of(f'{{"examples": [{{"f": {content}}}]}}')
    return example.features.feature["f"]


def refusal(body: str | bytes) -> str:
    with pytest.raises(InvalidArgument) as caught:
        decode_examples_body(body if isinstance(body, bytes) else body.encode())
    return caught.value.message


def test_signature_name() -> None:
    assert decode_examples_body(b'{"examples": [{}]}').signature_name == ""
    body = b'{"signature_name": "s", "examples": [{}]}'
    assert decode_examples_body(body).signature_name == "s"


def test_examples_keep_their_order() -> None:
    first, second, third = examples_of('{"examples": [{"a": 1}, {}, {"b": "x", "a": 2.0}]}')
    assert list(first.features.feature["a"].int64_list.value) == [1]
    assert not second.features.feature
    assert list(third.features.feature["a"].float_list.value) == [2.0]
    assert list(third.features.feature["b"].bytes_list.value) == [b"x"]


@pytest.mark.parametrize(
    ("content", "kind", "values"),
    [
        ("2.0", "float_list", [2.0]),
        ("[0.5, 2e0, -1E+1]", "float_list", [0.5, 2.0, -10.0]),
        ("[1e300, Infinity]", "float_list", [math.inf, math.inf]),
        ("2", "int64_list", [2]),
        ("[true, false, -1]", "int64_list", [1, 0, -1]),
        (
            "[9223372036854775807, -9223372036854775808]",
            "int64_list",
            [2**63 - 1, -(2**63)],
        ),
        ('"text"', "bytes_list", [b"text"]),
        ('["é", {"b64": "/w"}, ""]', "bytes_list", ["é".encode(), b"\xff", b""]),
        ('{"b64": "aGk="}', "bytes_list", [b"hi"]),
    ],
)
def test_the_kind_of_a_feature_follows_from_its_values(
    content: str, kind: str, values: list[object]
) -> None:
    feature = feature_of(content)
    assert feature.WhichOneof("kind") == kind
    assert list(getattr(feature, kind).value) == values


def test_no_values_make_a_feature_of_no_kind() -> None:
    assert feature_of("[]").WhichOneof("kind") is None


def test_bytes_that_are_not_utf8_are_values() -> None:
    tensor = decode_examples_body(b'{"examples": [{"f": "\xff"}]}').examples
    example = example_pb2.Example.FromString(tensor[0])
    assert list(example.features.feature["f"].bytes_list.value) == [b"\xff"]


def test_the_context_is_in_every_example() -> None:
    examples = examples_of('{"context": {"a": 1, "c": 3}, "examples": [{"a": 2}, {"b": 4}]}')
    found = [
        {name: list(feature.int64_list.value) for name, feature in one.features.feature.items()}
        for one in examples
    ]
    assert found == [{"a": [2], "c": [3]}, {"a": [1], "b": [4], "c": [3]}]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", "JSON Parse error: The document is empty"),
        ("[1]", "JSON Value: [1] Is not object"),
        (
            '{"signature_name": 1, "examples": [{}]}',
            (
                'JSON Value: {\n    "signature_name": 1,\n    "examples": [{}]\n} not formatted '
                "correctly. 'signature_name' key must be a string value."
            ),
        ),
        (
            '{"instances": [1]}',
            (
                "JSON Value: {\n    \"instances\": [1]\n} When method is classify, key 'examples' "
                "is expected and was not found"
            ),
        ),
        (
            '{"examples": {}}',
            "JSON Value: {\n    \"examples\": {}\n} Expecting 'examples' value to be an list/array",
        ),
        (
            '{"examples": null}',
            (
                "JSON Value: {\n    \"examples\": null\n} Expecting 'examples' value to be an "
                "list/array"
            ),
        ),
        (
            '{"examples": []}',
            "JSON Value: {\n    \"examples\": []\n} 'examples' value is an empty array",
        ),
        ('{"examples": [{}, [1]]}', "Example must be JSON object but got JSON Array"),
        ('{"examples": ["a"]}', "Example must be JSON object but got JSON String"),
        ('{"examples": [1]}', "Example must be JSON object but got JSON Number"),
        ('{"examples": [null]}', "Example must be JSON object but got JSON Null"),
        ('{"examples": [true]}', "Example must be JSON object but got JSON True"),
        # The context is read first.
        ('{"context": [], "examples": []}', "Example must be JSON object but got JSON Array"),
    ],
)
def test_bodies_that_hold_no_examples(body: str, text: str) -> None:
    assert refusal(body) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('["a", 1]', "Unexpected element type in feature: f expecting type: bytes"),
        ("[1.0, 1]", "Unexpected element type in feature: f expecting type: float"),
        ("[1, 1.0]", "Unexpected element type in feature: f expecting type: int64"),
        ("[1, true, 1.0]", "Unexpected element type in feature: f expecting type: int64"),
        ('[1, {"b64": "?"}]', "Unexpected element type in feature: f expecting type: int64"),
        ("null", "Feature: f has element with unexpected JSON type: Null"),
        ("[1, null]", "Feature: f has element with unexpected JSON type: Null"),
        ("[[1]]", "Feature: f has element with unexpected JSON type: Array"),
        ("{}", "Feature: f has element with unexpected JSON type: Object"),
        ('{"b64": 1}', "Feature: f has element with unexpected JSON type: Object"),
        ('{"b64": "?"}', "Unable to base64 decode"),
        (
            "9223372036854775808",
            "Feature: f has uint64_t element. Only int64_t is supported.",
        ),
    ],
)
def test_values_that_are_no_feature(content: str, text: str) -> None:
    assert refusal(f'{{"examples": [{{"f": {content}}}]}}') == text
    assert refusal(f'{{"context": {{"f": {content}}}, "examples": [{{}}]}}') == text


def test_names_must_be_utf8() -> None:
    text = refusal(b'{"examples": [{"\xff": 1}]}')
    assert text == "Feature: \udcff has a name that is not UTF-8"
