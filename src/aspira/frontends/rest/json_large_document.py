"""Reads a large JSON body that the fast parser has refused, without scanning all of it by hand.

The fast parser also says where and why it stopped. Its reasons stand for the reference's texts, and
the one token at which it stopped is read by the exact scanner, so that text and offset are those
of a small body. To get past what only the reference accepts, the fast parser is shown the body in
a plain form in which nothing has moved: an array of equal length for each `NaN` and `Inf`, question
marks for bytes that are not UTF-8, spaces for a byte order mark.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import orjson

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.rest.json_scanner import (
    BYTE_ORDER_MARK,
    INVALID_VALUE,
    MISSING_ARRAY_COMMA,
    MISSING_COLON,
    MISSING_EXPONENT,
    MISSING_FRACTION,
    MISSING_NAME,
    MISSING_OBJECT_COMMA,
    TOO_DEEP,
    Scanner,
    parse_float,
    parse_integer,
)

# In this order. Like a constant, an array cannot run into its neighbours; inside a string it does
# no harm. A misspelled `Infinity` must not pass for an `Inf`.
_PLAIN_FORMS: tuple[tuple[bytes, bytes], ...] = (
    (b"-Infinity", b"[       ]"),
    (b"Infinity", b"[      ]"),
    (b"Infi", b"?nfi"),
    (b"-Inf", b"[  ]"),
    (b"Inf", b"[ ]"),
    (b"-NaN", b"[  ]"),
    (b"NaN", b"[ ]"),
)
_WHITESPACE = re.compile(rb"[ \t\n\r]*")
_TRAILING_TEXT = "unexpected content after document"
_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "unexpected character, expected ',' or ']'": MISSING_ARRAY_COMMA,
        "unexpected character, expected ',' or '}'": MISSING_OBJECT_COMMA,
        "unexpected character, expected ':' after key": MISSING_COLON,
        "unexpected character, expected a string key": MISSING_NAME,
        "no digit after decimal point": MISSING_FRACTION,
        "no digit after exponent sign": MISSING_EXPONENT,
    }
)
_VALUE_REASONS = (
    "unexpected character, expected a JSON value",
    "invalid literal",
    "number is infinity",
    "no digit after sign",
)


class _Problem(NamedTuple):
    """Why the fast parser stopped, in its words, and at which byte."""

    reason: str
    offset: int


def parse_large_document(body: bytes) -> object:
    """The root value of a body that is not plain JSON, as `parse_document` gives it.

    Raises:
        InvalidArgument: not JSON, or nested too deep.
    """
    plain = _to_plain(body)
    problem = _try_find_problem(plain)
    if problem is not None and problem.reason != _TRAILING_TEXT:
        problem = _narrow_down(problem, plain=plain)
        if not plain[: problem.offset].strip():
            return Scanner(body).scan()
        _raise_if_known(problem, body=body)
    return _read_values(body)


def _to_plain(body: bytes) -> bytes:
    plain = body.decode("utf-8", "surrogateescape").encode("utf-8", "replace")
    if plain.startswith(BYTE_ORDER_MARK):
        plain = b" " * len(BYTE_ORDER_MARK) + plain[len(BYTE_ORDER_MARK) :]
    for odd, plain_form in _PLAIN_FORMS:
        plain = plain.replace(odd, plain_form)
    return plain


def _try_find_problem(plain: bytes) -> _Problem | None:
    try:
        orjson.loads(plain)
    except orjson.JSONDecodeError as error:
        return _Problem(error.msg, len(error.doc[: error.pos].encode()))
    return None


def _narrow_down(problem: _Problem, *, plain: bytes) -> _Problem:
    """Where the reason does not say what was expected, cut the body there and ask again."""
    match problem.reason:
        case "unexpected end of data":
            end = len(plain)
        case "trailing comma is not allowed":
            found = _WHITESPACE.match(plain, problem.offset + 1)
            end = found.end() if found else problem.offset + 1
        case "number with leading zero is not allowed":
            end = problem.offset + 1
        case _:
            return problem
    return _try_find_problem(plain[:end] + b"\x01") or problem


def _raise_if_known(problem: _Problem, *, body: bytes) -> None:
    reason, offset = problem
    scanner = Scanner(body, offset=offset)
    if reason in _TEXTS:
        scanner.fail(_TEXTS[reason])
    if reason == "depth limit exceeded":
        scanner.fail(TOO_DEEP, offset=offset - 1)
    if reason == "unexpected control character in string":
        scanner.read_characters()
    elif reason.endswith("in string"):
        scanner.read_escape()
    elif reason.startswith(_VALUE_REASONS):
        is_signed = body.endswith(b"-", 0, offset)
        Scanner(body, offset=offset - is_signed).read_value()


def _read_values(body: bytes) -> object:
    text = body.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "surrogateescape")
    if "-NaN" in text or text.count("Inf") > text.count("Infinity"):
        text = _spell_out_constants(text)
    decoder = json.JSONDecoder(parse_float=parse_float, parse_int=parse_integer)
    try:
        value, _ = decoder.raw_decode(text.lstrip(" \t\n\r"))
    except RecursionError:
        raise InvalidArgument(
            "JSON Parse error: Too many arrays and objects inside each other for a body that is "
            "large and not plain JSON"
        ) from None
    except ValueError:
        raise InvalidArgument(f"JSON Parse error: {INVALID_VALUE}") from None
    return value


def _spell_out_constants(text: str) -> str:
    """With the names that the standard library knows, outside of strings."""
    # Control characters are not in any string; here they stand for escapes, so as to split at
    # quotation marks that begin or end one.
    pieces = text.replace("\\\\", "\x01").replace('\\"', "\x02").split('"')
    pieces[::2] = [
        piece.replace("-NaN", "NaN").replace("Infinity", "Inf").replace("Inf", "Infinity")
        for piece in pieces[::2]
    ]
    return '"'.join(pieces).replace("\x02", '\\"').replace("\x01", "\\\\")
