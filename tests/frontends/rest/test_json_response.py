"""Bodies of answers, byte for byte."""

import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.rest.json_response import encode_error, encode_predictions


def floats(*values: object) -> np.ndarray:
    return np.array(values, np.float32)


def strings(*values: bytes) -> np.ndarray:
    return np.array(values, np.object_)


ROWS = [
    ({"y": floats(2.5, 3, 4.5)}, '{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'),
    ({"y": floats([1, 2], [3, 4])}, '{\n    "predictions": [[1.0, 2.0], [3.0, 4.0]\n    ]\n}'),
    (
        {"y": np.arange(8).reshape(2, 2, 2)},
        '{\n    "predictions": [[[0, 1], [2, 3]], [[4, 5], [6, 7]]\n    ]\n}',
    ),
    (
        {"a": floats([1, 2]), "b": floats(3)},
        (
            '{\n    "predictions": [\n        {\n            "a": [1.0, 2.0],\n'
            '            "b": 3.0\n        }\n    ]\n}'
        ),
    ),
    (
        {"b%": np.array([True, False]), 'a"': np.array([1, 2])},
        (
            '{\n    "predictions": [\n        {\n            "b%": true,\n            "a\\"": 1\n'
            '        },\n        {\n            "b%": false,\n            "a\\"": 2\n'
            "        }\n    ]\n}"
        ),
    ),
    (
        {"x_bytes": strings(b"hi", b"\xff")},
        (
            '{\n    "predictions": [{\n            "b64": "aGk="\n        }, {\n'
            '            "b64": "/w=="\n        }\n    ]\n}'
        ),
    ),
    (
        {"x_bytes": strings([b"hi"])},
        '{\n    "predictions": [[{\n                "b64": "aGk="\n            }]\n    ]\n}',
    ),
    (
        {"x_bytes": strings(b"hi"), "n": np.array([1])},
        (
            '{\n    "predictions": [\n        {\n            "x_bytes": {\n'
            '                "b64": "aGk="\n'
            '            },\n            "n": 1\n        }\n    ]\n}'
        ),
    ),
    ({"y": floats()}, '{\n    "predictions": []\n}'),
    ({"a": floats(), "b": floats()}, '{\n    "predictions": []\n}'),
    ({"y": np.zeros((2, 0))}, '{\n    "predictions": [[], []\n    ]\n}'),
    ({"y": np.zeros((1, 2, 0, 3))}, '{\n    "predictions": [[[], []]\n    ]\n}'),
    ({"n_bytes": np.array([1])}, '{\n    "predictions": [1\n    ]\n}'),
]

COLUMNS = [
    ({"y": np.float32(2)[np.newaxis][0].reshape(())}, '{\n    "outputs": 2.0\n}'),
    (
        {"y": floats([1, 2])},
        '{\n    "outputs": [\n        [\n            1.0,\n            2.0\n        ]\n    ]\n}',
    ),
    (
        {"y": floats([1], [2])},
        (
            '{\n    "outputs": [\n        [\n            1.0\n        ],\n'
            "        [\n            2.0\n        ]\n    ]\n}"
        ),
    ),
    (
        {"a": floats(1, 2), "b": np.array(7)},
        (
            '{\n    "outputs": {\n        "a": [\n            1.0,\n            2.0\n        ],\n'
            '        "b": 7\n    }\n}'
        ),
    ),
    (
        {"x_bytes": strings(b"hi")},
        '{\n    "outputs": [\n        {\n            "b64": "aGk="\n        }\n    ]\n}',
    ),
    ({"y": floats()}, '{\n    "outputs": []\n}'),
    (
        {"y": np.zeros((2, 0))},
        '{\n    "outputs": [\n        [],\n        []\n    ]\n}',
    ),
]


@pytest.mark.parametrize(("outputs", "text"), ROWS)
def test_row_format(outputs: dict[str, np.ndarray], text: str) -> None:
    assert encode_predictions(outputs, is_row_format=True).decode() == text


@pytest.mark.parametrize(("outputs", "text"), COLUMNS)
def test_columnar_format(outputs: dict[str, np.ndarray], text: str) -> None:
    assert encode_predictions(outputs, is_row_format=False).decode() == text


def test_strings_are_escaped_and_otherwise_raw() -> None:
    value = b'"\\/\b\f\n\r\t\x00\x1f\x7f \xff ' + "é".encode()
    body = encode_predictions({"s": strings(value, b"plain")}, is_row_format=True)
    assert body == (
        b'{\n    "predictions": ["\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001F\x7f \xff \xc3\xa9", "plain"'
        b"\n    ]\n}"
    )


@pytest.mark.parametrize("values", [np.array(["a", "é"]), np.array([b"a", "é".encode()])])
def test_other_text_arrays_are_strings(values: np.ndarray) -> None:
    body = encode_predictions({"s": values}, is_row_format=True)
    assert body.decode() == '{\n    "predictions": ["a", "é"\n    ]\n}'


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({}, "Cannot convert empty tensor map to JSON"),
        ({"y": np.array(1)}, "Tensor name: y has no shape information "),
        (
            {"a": floats(1), "b": floats(1, 2)},
            "Tensor name: b has inconsistent batch size: 2 expecting: 1",
        ),
        (
            {"a": floats(), "b": floats(1)},
            "Tensor name: b has inconsistent batch size: 1 expecting: 0",
        ),
    ],
)
def test_row_format_errors(outputs: dict[str, np.ndarray], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        encode_predictions(outputs, is_row_format=True)
    assert caught.value.message == text


@pytest.mark.parametrize("is_row_format", [True, False])
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.float16, "half"),
        ("bfloat16", "bfloat16"),
        (np.uint16, "uint16"),
        (np.complex64, "complex64"),
        (np.complex128, "complex128"),
        ("datetime64[s]", "datetime64[s]"),
    ],
)
def test_unsupported_types(dtype: object, name: str, is_row_format: bool) -> None:
    values = np.zeros(1, dtype)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument) as caught:
        encode_predictions({"y": values}, is_row_format=is_row_format)
    assert caught.value.message == f"Failed to write JSON value for tensor type: {name}"


def test_error() -> None:
    assert encode_error('say "no"\n').decode() == '{\n    "error": "say \\"no\\"\\n"\n}'
    assert encode_error("\udcff") == b'{\n    "error": "\xff"\n}'
