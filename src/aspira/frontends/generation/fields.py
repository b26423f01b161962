"""Reads the fields of a JSON object by type; remembers which were read, so that others are known.

A field that is null is as one that is not there, as OpenAI's clients mean it.
"""

import json
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar, overload

import orjson

from aspira.contracts.errors import InvalidArgument
from aspira.frontends.offload import on_thread

DefaultT = TypeVar("DefaultT")

_LARGE_BODY_BYTES = 64 << 10
_MAX_LOGGED_NAMES = 256
_MAX_NAME_LENGTH = 64

_logger = logging.getLogger(__name__)


class BadField(InvalidArgument):
    """A field of the body is wrong; `param` names it."""

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param


class Fields:
    """One JSON object. Each method raises BadField for a value of another type."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()

    def unread(self) -> list[str]:
        """The names that nothing asked for."""
        return [name for name in self._values if name not in self._read]

    def has(self, name: str) -> bool:
        return self.value(name) is not None

    def value(self, name: str) -> Any:
        """Whatever it is; None if it is not there."""
        self._read.add(name)
        return self._values.get(name)

    def ignore(self, *names: str) -> None:
        """These are known, and have no effect here."""
        self._read.update(names)

    @overload
    def text(self, name: str) -> str | None: ...
    @overload
    def text(self, name: str, *, default: str) -> str: ...
    def text(self, name: str, *, default: str | None = None) -> str | None:
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise BadField(f"{name} must be a string.", param=name)
        return default if value is None else value

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise BadField(f"{name} must be true or false.", param=name)
        return value

    @overload
    def integer(self, name: str) -> int | None: ...
    @overload
    def integer(self, name: str, *, default: int) -> int: ...
    def integer(self, name: str, *, default: int | None = None) -> int | None:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadField(f"{name} must be an integer.", param=name)
        return value

    def number(self, name: str, *, default: float) -> float:
        value = self.value(name)
        if value is None:
            return default
        return as_number(value, name=name)

    def object(self, name: str) -> "Fields | None":
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise BadField(f"{name} must be an object.", param=name)
        return Fields(value)

    def list(self, name: str) -> list[Any]:
        """Empty if it is not there."""
        value = self.value(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadField(f"{name} must be an array.", param=name)
        return value


def as_number(value: object, *, name: str) -> float:
    """A JSON number, finite."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise BadField(f"{name} must be a number.", param=name)
    return float(value)


async def read_fields(body: bytes) -> Fields:
    """As `parse_fields`, on the loop's pool if it is large."""
    if len(body) < _LARGE_BODY_BYTES:
        return parse_fields(body)
    return await on_thread(partial(parse_fields, body))


def parse_fields(body: bytes, *, has_non_finite: bool = False) -> Fields:
    """The object that a body holds; `has_non_finite`: NaN and infinities may be among its numbers.

    Raises:
        InvalidArgument: it holds something else.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _try_with_non_finite(body) if has_non_finite else None
        if value is None:
            raise InvalidArgument(f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument("The body must be a JSON object.")
    return Fields(value)


def _try_with_non_finite(body: bytes) -> object:
    """What a body holds as Python writes JSON, with the words NaN, Infinity, -Infinity; else None.

    Slower, and so only for what has one of these words.
    """
    if b"NaN" not in body and b"Infinity" not in body:
        return None
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        return None


class UnknownFields:
    """Says once of each field that nobody knows that it has no effect.

    For a limited number of short names, since clients choose them.
    """

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, fields: Fields) -> None:
        """After all known fields were read."""
        for name in fields.unread():
            is_full = len(self._logged) >= _MAX_LOGGED_NAMES
            if name not in self._logged and not is_full and len(name) <= _MAX_NAME_LENGTH:
                self._logged.add(name)
                _logger.warning("The field %r of a request has no effect here", name)
