"""Reprints a JSON value for an error message, in the layout of the reference and cut off short."""

import math
from collections.abc import Iterator, Mapping

from aspira.frontends.rest.json_numbers import decimal_text
from aspira.frontends.rest.json_response import quote_string

MAX_DEBUG_BYTES = 256

_MAX_FLOAT = 3.4028234e38
_INDENT = b"    "
_MAX_PLAIN_DIGITS = 21
_MIN_PLAIN_POINT = -6


def json_type_name(value: object) -> str:
    """The JSON type as error texts spell it; `true` and `false` are types of their own."""
    match value:
        case None:
            return "Null"
        case bool():
            return str(value)
        case dict():
            return "Object"
        case list():
            return "Array"
        case str():
            return "String"
    return "Number"


def debug_text(value: object) -> str:
    """`value` as JSON with 4-space indent and single-line arrays, cut at `MAX_DEBUG_BYTES`."""
    if isinstance(value, float):
        return decimal_text(value, is_single_precision=abs(value) <= _MAX_FLOAT)
    text = bytearray()
    for piece in _pieces(value, depth=0):
        text += piece
        if len(text) >= MAX_DEBUG_BYTES:
            break
    return text[:MAX_DEBUG_BYTES].decode("utf-8", "replace")


def _pieces(value: object, *, depth: int) -> Iterator[bytes]:
    """Lazy, so that neither the size nor the depth of a large document is ever walked in full."""
    if isinstance(value, dict):
        yield from _object_pieces(value, depth=depth)
    elif isinstance(value, list):
        yield b"["
        for index, element in enumerate(value):
            if index:
                yield b", "
            yield from _pieces(element, depth=depth + 1)
        yield b"]"
    else:
        yield _encode_scalar(value)


def _object_pieces(members: Mapping[str, object], *, depth: int) -> Iterator[bytes]:
    yield b"{"
    for index, (name, member) in enumerate(members.items()):
        yield b",\n" if index else b"\n"
        yield _INDENT * (depth + 1) + _quote_start(name) + b": "
        yield from _pieces(member, depth=depth + 1)
    if members:
        yield b"\n" + _INDENT * depth
    yield b"}"


def _encode_scalar(value: object) -> bytes:
    match value:
        case None:
            return b"null"
        case bool():
            return b"true" if value else b"false"
        case str():
            return _quote_start(value)
        case float():
            return _shortest_decimal(value).encode("ascii")
    return str(value).encode("ascii")


def _quote_start(text: str) -> bytes:
    """All that can be seen of a string: no more than the bound is worth escaping."""
    return quote_string(text[:MAX_DEBUG_BYTES].encode("utf-8", "surrogateescape"))


def _shortest_decimal(value: float) -> str:
    """A number inside a container; unlike a value of its own it keeps the digits of a double.

    The reference writes an exponent only past 21 digits or 5 zeros after the point, and then
    without sign or padding.
    """
    if not math.isfinite(value):
        return decimal_text(value, is_single_precision=False)
    mantissa, _, exponent = repr(value).partition("e")
    if not exponent:
        return mantissa
    sign = "-" if value < 0 else ""
    digits = mantissa.lstrip("-").replace(".", "")
    point = int(exponent) + 1
    if 0 < point <= _MAX_PLAIN_DIGITS:
        return f"{sign}{digits.ljust(point, '0')}.0"
    if _MIN_PLAIN_POINT < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{int(exponent)}"
