"""Reads a JSON body as leniently as the reference's parser, and reports errors in its words.

Well-formed JSON takes the fast parser. What it refuses goes to the standard library's, which knows
`NaN` and stops after the root value. What that refuses too is scanned by hand, to accept the last
oddities (`Inf`) or to find the exact text and byte offset of the error; in a large body faster
means have to do (`aspira.frontends.rest.json_large_document`). Of duplicate names the last one
wins.
"""

import json
import re

import orjson

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.rest.json_large_document import parse_large_document
from aspira.frontends.rest.json_scanner import (
    BYTE_ORDER_MARK,
    MAX_DEPTH,
    Scanner,
    parse_float,
    parse_integer,
)

__all__ = ["MAX_DEPTH", "MAX_SCANNED_BYTES", "parse_document"]

# Scanned in about 10 ms, which other requests on the event loop have to wait.
MAX_SCANNED_BYTES = 8 * 2**10

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_document(body: bytes | memoryview) -> object:
    """The root value of `body`; text after it is ignored.

    Bytes that are not UTF-8 become lone surrogates (`surrogateescape`), so that a string encodes
    back to what was sent. Integers beyond 64 bits become floats.

    Raises:
        InvalidArgument: not JSON, or nested deeper than `MAX_DEPTH`.
    """
    if not body:
        raise InvalidArgument("JSON Parse error: The document is empty")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if len(body) > MAX_SCANNED_BYTES:
            return parse_large_document(bytes(body))
        return _parse_leniently(bytes(body))


def _parse_leniently(body: bytes) -> object:
    # The standard library would take half a surrogate pair, so such a body is scanned.
    if _SURROGATE_ESCAPE.search(body) is None:
        text = body.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "surrogateescape")
        decoder = json.JSONDecoder(parse_float=parse_float, parse_int=parse_integer)
        try:
            value, _ = decoder.raw_decode(text.lstrip(" \t\n\r"))
        except (ValueError, RecursionError):
            value = None
        # A scalar root may be the valid start of a malformed number such as `1.`.
        if isinstance(value, dict | list):
            return value
    return Scanner(body).scan()
