"""JSON values as error messages show them."""

import math

import pytest

from aspira.frontends.rest.json_debug import MAX_DEBUG_BYTES, debug_text, json_type_name


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "Null"),
        (False, "False"),
        (True, "True"),
        ({}, "Object"),
        ([], "Array"),
        ("", "String"),
        (1, "Number"),
        (1.5, "Number"),
    ],
)
def test_type_names(value: object, name: str) -> None:
    assert json_type_name(value) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (2**64 - 1, "18446744073709551615"),
        (1.0, "1.0"),
        (0.1, "0.1"),
        (0.123456789, "0.123456791"),
        (1e300, "1e+300"),
        (1.23456789e300, "1.2345678899999999e+300"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        ('a"\n', '"a\\"\\n"'),
        ([], "[]"),
        ({}, "{}"),
        ([1, [2.5, "x"], None], '[1, [2.5, "x"], null]'),
        ({"a": [1, 2], "b": {}}, '{\n    "a": [1, 2],\n    "b": {}\n}'),
        ([{"a": 1}], '[{\n        "a": 1\n    }]'),
        ([math.nan, -math.inf], "[NaN, -Infinity]"),
        (
            [1e-5, 1e-7, 1.5e-9, 1e16, -1e20, 1.5e22, 1e21],
            "[0.00001, 1e-7, 1.5e-9, 10000000000000000.0, -100000000000000000000.0, 1.5e22, 1e21]",
        ),
    ],
)
def test_values(value: object, text: str) -> None:
    assert debug_text(value) == text


@pytest.mark.parametrize(
    "value",
    [list(range(10**6)), "x" * 10**6, {"k" * 1000: 1}, {str(i): i for i in range(1000)}],
)
def test_long_values_are_cut(value: object) -> None:
    assert len(debug_text(value)) == MAX_DEBUG_BYTES


def test_deep_values_are_cut() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    assert debug_text(value) == "[" * MAX_DEBUG_BYTES


def test_cut_inside_a_character_stays_text() -> None:
    assert debug_text("é" * 200).encode("utf-8").startswith('"é'.encode())
