"""The exact reader of JSON, with the reference's leniency, error texts and byte offsets.

It reads less than a megabyte a second, so it is for small documents, and for the one token of a
large document at which a faster parser stopped.
"""

import math
import re
from types import MappingProxyType
from typing import NoReturn

from aspira.contracts.errors import InvalidArgument

MAX_DEPTH = 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MISSING_ARRAY_COMMA = "Missing a comma or ']' after an array element."
MISSING_OBJECT_COMMA = "Missing a comma or '}' after an object member."
MISSING_NAME = "Missing a name for object member."
MISSING_COLON = "Missing a colon after a name of object member."
MISSING_FRACTION = "Miss fraction part in number."
MISSING_EXPONENT = "Miss exponent in number."
INVALID_VALUE = "Invalid value."
TOO_DEEP = f"More than {MAX_DEPTH} arrays and objects inside each other."

_WHITESPACE = re.compile(rb"[ \t\n\r]*")
_PLAIN_CHARACTERS = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX_DIGITS = re.compile(rb"[0-9a-fA-F]{4}")
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_FRACTION = re.compile(rb"\.[0-9]+")
_EXPONENT_MARK = re.compile(rb"[eE][+-]?")
_DIGITS = re.compile(rb"[0-9]+")
_ESCAPES = MappingProxyType(
    {
        ord('"'): b'"',
        ord("\\"): b"\\",
        ord("/"): b"/",
        ord("b"): b"\b",
        ord("f"): b"\f",
        ord("n"): b"\n",
        ord("r"): b"\r",
        ord("t"): b"\t",
    }
)
_END = 0
_LONGEST_INTEGER = 20
_MIN_INTEGER = -(2**63)
_MAX_INTEGER = 2**64 - 1


def parse_float(text: str) -> float:
    """The number a JSON text means.

    Raises:
        ValueError: it is beyond a double.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def parse_integer(text: str) -> int | float:
    """The number a JSON text means, as a float if it is beyond 64 bits.

    Raises:
        ValueError: it is beyond a double.
    """
    if len(text) > _LONGEST_INTEGER:
        return parse_float(text)
    value = int(text)
    return value if _MIN_INTEGER <= value <= _MAX_INTEGER else float(value)


class Scanner:
    """One pass over a document; a zero byte counts as its end, as in the reference's parser.

    `scan` reads a document. The other public methods read what stands at `offset`, and all raise
    InvalidArgument where that is malformed.
    """

    def __init__(self, data: bytes, *, offset: int = 0) -> None:
        self._data = data
        self._position = offset
        self._open: list[dict[str, object] | list[object]] = []

    def scan(self) -> object:
        """The root value; text after it is ignored."""
        self._try_take(BYTE_ORDER_MARK)
        self._skip_whitespace()
        if self._peek() in b"\0,:]}":
            self.fail("The document is empty.")
        root = self.read_value()
        while self._open:
            self._skip_whitespace()
            innermost = self._open[-1]
            if isinstance(innermost, dict):
                self._advance_object(innermost)
            else:
                self._advance_array(innermost)
        return root

    def _advance_array(self, elements: list[object]) -> None:
        if self._try_take(b"]"):
            self._open.pop()
            return
        if elements:
            self._take(b",", error=MISSING_ARRAY_COMMA)
            self._skip_whitespace()
        elements.append(self.read_value())

    def _advance_object(self, members: dict[str, object]) -> None:
        if self._try_take(b"}"):
            self._open.pop()
            return
        if members:
            self._take(b",", error=MISSING_OBJECT_COMMA)
            self._skip_whitespace()
        if self._peek() != ord('"'):
            self.fail(MISSING_NAME)
        name = self._read_string()
        self._skip_whitespace()
        self._take(b":", error=MISSING_COLON)
        self._skip_whitespace()
        members[name] = self.read_value()

    def read_value(self) -> object:
        """A scalar, or a container that is now open and still empty."""
        match chr(self._peek()):
            case "{":
                return self._enter({})
            case "[":
                return self._enter([])
            case '"':
                return self._read_string()
            case "t":
                return self._read_word(b"true", value=True)
            case "f":
                return self._read_word(b"false", value=False)
            case "n":
                return self._read_word(b"null", value=None)
        return self._read_number()

    def _enter(self, container: dict[str, object] | list[object]) -> object:
        if len(self._open) == MAX_DEPTH:
            self.fail(TOO_DEEP)
        self._position += 1
        self._open.append(container)
        return container

    def _read_word(self, word: bytes, *, value: object) -> object:
        for character in word:
            if self._peek() != character:
                self.fail(INVALID_VALUE)
            self._position += 1
        return value

    def _read_number(self) -> object:
        start = self._position
        if not self._try_match(_INTEGER):
            return self._read_constant()
        is_integer = True
        if self._peek() == ord("."):
            is_integer = False
            if not self._try_match(_FRACTION):
                self.fail(MISSING_FRACTION, offset=self._position + 1)
        if self._try_match(_EXPONENT_MARK):
            is_integer = False
            if not self._try_match(_DIGITS):
                self.fail(MISSING_EXPONENT)
        text = self._data[start : self._position].decode("ascii")
        try:
            return parse_integer(text) if is_integer else parse_float(text)
        except ValueError:
            self.fail("Number too big to be stored in double.", offset=start)

    def _read_constant(self) -> object:
        sign = -1.0 if self._try_take(b"-") else 1.0
        if self._peek() == ord("N"):
            return self._read_word(b"NaN", value=math.nan)
        self._read_word(b"Inf", value=None)
        if self._peek() == ord("i"):
            self._read_word(b"inity", value=None)
        return sign * math.inf

    def _read_string(self) -> str:
        self._position += 1
        return self.read_characters()

    def read_characters(self) -> str:
        """What is left of a string, from inside it."""
        pieces: list[bytes] = []
        while True:
            start = self._position
            self._try_match(_PLAIN_CHARACTERS)
            pieces.append(self._data[start : self._position])
            if self._try_take(b'"'):
                return b"".join(pieces).decode("utf-8", "surrogateescape")
            if self._peek() == ord("\\"):
                pieces.append(self.read_escape())
            elif self._peek() == _END:
                self.fail("Missing a closing quotation mark in string.")
            else:
                self.fail("Invalid escape character in string.")

    def read_escape(self) -> bytes:
        """The character that a backslash and what follows it stand for, as UTF-8."""
        start = self._position
        self._position += 1
        character = self._peek()
        self._position += 1
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character != ord("u"):
            self.fail("Invalid escape character in string.", offset=start)
        code_point = self._read_hex(start)
        if 0xD800 <= code_point <= 0xDFFF:
            code_point = self._join_surrogates(code_point, escape_offset=start)
        return chr(code_point).encode()

    def _join_surrogates(self, high: int, *, escape_offset: int) -> int:
        error = "The surrogate pair in string is invalid."
        if high > 0xDBFF or self._data[self._position : self._position + 2] != b"\\u":
            self.fail(error, offset=escape_offset)
        self._position += 2
        low = self._read_hex(escape_offset)
        if not 0xDC00 <= low <= 0xDFFF:
            self.fail(error, offset=escape_offset)
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)

    def _read_hex(self, escape_offset: int) -> int:
        start = self._position
        if not self._try_match(_HEX_DIGITS):
            self.fail("Incorrect hex digit after \\u escape in string.", offset=escape_offset)
        return int(self._data[start : self._position], 16)

    def _peek(self) -> int:
        return self._data[self._position] if self._position < len(self._data) else _END

    def _take(self, expected: bytes, *, error: str) -> None:
        if not self._try_take(expected):
            self.fail(error)

    def _try_take(self, expected: bytes) -> bool:
        if not self._data.startswith(expected, self._position):
            return False
        self._position += len(expected)
        return True

    def _try_match(self, pattern: re.Pattern[bytes]) -> bool:
        found = pattern.match(self._data, self._position)
        if found is None:
            return False
        self._position = found.end()
        return True

    def _skip_whitespace(self) -> None:
        self._try_match(_WHITESPACE)

    def fail(self, text: str, *, offset: int | None = None) -> NoReturn:
        """Raise the error, of this offset or of the place that was reached."""
        where = self._position if offset is None else offset
        raise InvalidArgument(f"JSON Parse error: {text} at offset: {where}")
