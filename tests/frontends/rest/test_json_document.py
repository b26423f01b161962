"""Leniency and error texts of the JSON reader."""

import math

import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.rest import json_document
from aspira.frontends.rest.json_document import MAX_DEPTH, MAX_SCANNED_BYTES, parse_document
from aspira.frontends.rest.json_large_document import parse_large_document


def error_of(body: bytes) -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse_document(body)
    return caught.value.message


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1, 2.5, "x", true, false, null]}', {"a": [1, 2.5, "x", True, False, None]}),
        (memoryview(b"[1]"), [1]),
        (b"[1] garbage", [1]),
        (b' \r\n\t{"a": 1}}', {"a": 1}),
        (b"\xef\xbb\xbf[1]", [1]),
        (b"\xef\xbb\xbf[Inf]", [math.inf]),
        (b"[Infinity, -Infinity]", [math.inf, -math.inf]),
        (b"[Inf, -Inf, -Infinity]", [math.inf, -math.inf, -math.inf]),
        (
            b'[Inf, {"a": [{}, []]}, true, false, null]',
            [math.inf, {"a": [{}, []]}, True, False, None],
        ),
        (
            b'[Inf, "\\" \\\\ \\/ \\b\\f\\n\\r\\t \\u00e9 \\ud83d\\ude00"]',
            [math.inf, '" \\ / \b\f\n\r\t é 😀'],
        ),
        (b"[Inf, 0, -7, 1.5, 2e2, 2E-1, -0.5e+1]", [math.inf, 0, -7, 1.5, 200.0, 0.2, -5.0]),
        (b"[18446744073709551615, -9223372036854775808]", [2**64 - 1, -(2**63)]),
        (b"[18446744073709551616] x", [float(2**64)]),
        (b"[-9223372036854775809] x", [float(-(2**63) - 1)]),
        (b"[Inf, 123456789012345678901234567890]", [math.inf, 123456789012345678901234567890.0]),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": Inf, "a": 2}', {"a": 2}),
        (b"3", 3),
        (b"3 4", 3),
        (b'"x" y', "x"),
        (b"Inf", math.inf),
        (b'["\\ud83d\\ude00"] x', ["😀"]),
    ],
)
def test_accepted(body: bytes, value: object) -> None:
    assert parse_document(body) == value
    assert parse_large_document(bytes(body)) == value


@pytest.mark.parametrize("body", [b"[NaN]", b"[-NaN]", b"[NaN] x", b"[NaN, Inf]"])
def test_nan_is_accepted(body: bytes) -> None:
    for parse in (parse_document, parse_large_document):
        found = parse(body)
        assert isinstance(found, list)
        assert math.isnan(found[0])


@pytest.mark.parametrize("text", [b'["\xff\xfe\x80"]', b'["\xff\xfe\x80", Inf]'])
def test_bytes_that_are_not_utf8_survive(text: bytes) -> None:
    for parse in (parse_document, parse_large_document):
        found = parse(text)
        assert isinstance(found, list)
        assert found[0].encode("utf-8", "surrogateescape") == b"\xff\xfe\x80"


@pytest.mark.parametrize(
    "string", [b"Inf", b"-NaN", b'\\"Inf\\"', b"\\\\", b'\\\\\\" -Infinity', b"\xffInf"]
)
def test_constants_in_strings_of_large_bodies_stay(string: bytes) -> None:
    found = parse_large_document(b'[Inf, "' + string + b'", -Inf, "Inf", -NaN]')
    assert isinstance(found, list)
    expected = string.replace(b'\\"', b'"').replace(b"\\\\", b"\\")
    assert found[1].encode("utf-8", "surrogateescape") == expected
    assert (found[0], found[2], found[3]) == (math.inf, -math.inf, "Inf")


@pytest.mark.parametrize(
    ("body", "text", "offset"),
    [
        (b"  ", "The document is empty.", 2),
        (b"\0[1]", "The document is empty.", 0),
        (b"]", "The document is empty.", 0),
        (b"nul", "Invalid value.", 3),
        (b"[nulx]", "Invalid value.", 4),
        (b"[trve]", "Invalid value.", 3),
        (b"[falsy]", "Invalid value.", 5),
        (b"x", "Invalid value.", 0),
        (b"[", "Invalid value.", 1),
        (b"[,", "Invalid value.", 1),
        (b"[1,]", "Invalid value.", 3),
        (b"[-]", "Invalid value.", 2),
        (b"[-x]", "Invalid value.", 2),
        (b"[+1]", "Invalid value.", 1),
        (b"[.5]", "Invalid value.", 1),
        (b"[Na]", "Invalid value.", 3),
        (b"[Infinite]", "Invalid value.", 8),
        (b'{"a":', "Invalid value.", 5),
        (b'{"a":}', "Invalid value.", 5),
        (b"{", "Missing a name for object member.", 1),
        (b"{a: 1}", "Missing a name for object member.", 1),
        (b'{"a": 1,}', "Missing a name for object member.", 8),
        (b'{"a"', "Missing a colon after a name of object member.", 4),
        (b'{"a" 1}', "Missing a colon after a name of object member.", 5),
        (b'{"a": 1', "Missing a comma or '}' after an object member.", 7),
        (b'{"a": 1 "b": 2}', "Missing a comma or '}' after an object member.", 8),
        (b"[1", "Missing a comma or ']' after an array element.", 2),
        (b"[1 2]", "Missing a comma or ']' after an array element.", 3),
        (b"[01]", "Missing a comma or ']' after an array element.", 2),
        (b'["\\u12g4"]', "Incorrect hex digit after \\u escape in string.", 2),
        (b'["\\u12', "Incorrect hex digit after \\u escape in string.", 2),
        (b'["\\ud800"]', "The surrogate pair in string is invalid.", 2),
        (b'["\\ud800\\u0041"]', "The surrogate pair in string is invalid.", 2),
        (b'["\\udc00"]', "The surrogate pair in string is invalid.", 2),
        (b'["a\\x"]', "Invalid escape character in string.", 3),
        (b'["a\nb"]', "Invalid escape character in string.", 3),
        (b'["abc', "Missing a closing quotation mark in string.", 5),
        (b'["a\0b"]', "Missing a closing quotation mark in string.", 3),
        (b"[1e400]", "Number too big to be stored in double.", 1),
        (b"[1, -1.5e999]", "Number too big to be stored in double.", 4),
        (b"[" + b"9" * 400 + b"]", "Number too big to be stored in double.", 1),
        (b"[" + b"9" * 5000 + b"]", "Number too big to be stored in double.", 1),
        (b"[1.]", "Miss fraction part in number.", 3),
        (b"1.", "Miss fraction part in number.", 2),
        (b"[1.x]", "Miss fraction part in number.", 3),
        (b"[1e]", "Miss exponent in number.", 3),
        (b"[1.5e+]", "Miss exponent in number.", 6),
        (b"\xef\xbb\xbf[1 2]", "Missing a comma or ']' after an array element.", 6),
        (b'["\xc3\xa9" 1]', "Missing a comma or ']' after an array element.", 6),
        (b'["\xff\xff" 1]', "Missing a comma or ']' after an array element.", 6),
        (b"[NaN, Inf, -Infinity, 1 2]", "Missing a comma or ']' after an array element.", 24),
        (b"[1, \n]", "Invalid value.", 5),
        (b'{"a": 1, }', "Missing a name for object member.", 9),
    ],
)
def test_error_texts_and_offsets(body: bytes, text: str, offset: int) -> None:
    assert error_of(body) == f"JSON Parse error: {text} at offset: {offset}"
    with pytest.raises(InvalidArgument) as caught:
        parse_large_document(body)
    assert caught.value.message == f"JSON Parse error: {text} at offset: {offset}"


def test_large_bodies_are_not_scanned_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "Scanner", None)
    start = b'{"instances": [' + b"1.5, " * (MAX_SCANNED_BYTES // 5)
    assert error_of(start + b"1 2]}") == (
        "JSON Parse error: Missing a comma or ']' after an array element. at offset: "
        f"{len(start) + 2}"
    )
    assert error_of(start + b'"\xff", trve]}').startswith("JSON Parse error: Invalid value.")
    assert parse_document(start + b'"\xff", Inf]}')


def test_a_large_body_of_nothing_but_space_is_empty() -> None:
    num_bytes = MAX_SCANNED_BYTES + 1
    assert error_of(b" " * num_bytes) == (
        f"JSON Parse error: The document is empty. at offset: {num_bytes}"
    )


def test_large_bodies_that_are_deep_are_errors() -> None:
    space = b" " * MAX_SCANNED_BYTES
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse_document(deep + space)
    assert "More than 1024 arrays and objects" in error_of(b"[" + deep + b"]" + space)
    oddly_deep = b"[" * (MAX_DEPTH - 1) + b"Inf" + b"]" * (MAX_DEPTH - 1)
    assert "Too many arrays and objects" in error_of(oddly_deep + space)


@pytest.mark.parametrize("body", [b"", memoryview(b"")])
def test_empty_body_has_no_offset(body: bytes) -> None:
    assert error_of(body) == "JSON Parse error: The document is empty"


def test_depth_is_bounded() -> None:
    parse_document(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    nested = b"[" * MAX_DEPTH + b"Inf" + b"]" * MAX_DEPTH
    parse_document(nested)
    assert error_of(b"[" + nested + b"]") == (
        "JSON Parse error: More than 1024 arrays and objects inside each other. at offset: 1024"
    )


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_endless_nesting_is_an_error(opening: bytes) -> None:
    assert "More than 1024 arrays and objects" in error_of(opening * 100_000)
