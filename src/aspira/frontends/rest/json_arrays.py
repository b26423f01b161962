"""Reads a large body's arrays of numbers piece by piece, without a Python object for each number.

Such a body is mostly digits. A piece of them, its brackets blanked, is a list that the fast parser
makes and that is an array a moment later: neither gigabytes of lists are ever there, nor is the
interpreter's lock held for long. That the brackets make a regular array is seen from the text with
everything but brackets and commas deleted, which repeats itself. Whatever is not a regular array of
numbers, or not plain JSON, is left to the general reader, errors and all.
"""

from array import array
from collections.abc import Iterator, Mapping
from math import prod

import numpy as np
import orjson

from aspira.contracts.tensors import Tensor
from aspira.frontends.rest.json_values import MAX_RANK

# From here on reading in pieces is the faster way.
MIN_ARRAY_BYTES = 128 * 2**10
_PIECE_BYTES = 64 * 2**10
# Where there are more strings than this, there cannot be many large lists between them.
_BYTES_PER_QUOTE = 512
_WHITESPACE = b" \t\n\r"
_NUMBER_CHARACTERS = b"0123456789+-.eE"
_DIGIT = b"0"
_TO_DIGITS = bytes.maketrans(_NUMBER_CHARACTERS, _DIGIT * len(_NUMBER_CHARACTERS))
_TO_BLANKS = bytes.maketrans(b"[]", b"  ")
_COMMA = b","

_Extent = tuple[int, int]


def try_read_document(body: bytes) -> dict[str, object] | None:
    """The document, with an array for each large list of numbers among its values.

    Arrays stand only where inputs do: as `instances` or `inputs`, or as a member of them. Whole
    numbers give an int64 array, others a float64 one. None if all is to be read the general way.
    """
    # With an escape in it, a string would not end at the next quotation mark.
    if b"\\" in body or body.count(b'"') * _BYTES_PER_QUOTE > len(body):
        return None
    pieces: list[bytes] = []
    arrays: list[Tensor] = []
    position = 0
    for start, end in _find_large_lists(body):
        numbers = _try_read_array(body, start=start, end=end)
        if numbers is None:
            return None
        # No string of the body can be the same: this one has a backslash.
        pieces += [body[position:start], b'"\\\\%d"' % len(arrays)]
        arrays.append(numbers)
        position = end
    if not arrays:
        return None
    try:
        document = orjson.loads(b"".join([*pieces, body[position:]]))
    except orjson.JSONDecodeError:
        return None
    places = {f"\\{index}": numbers for index, numbers in enumerate(arrays)}
    return _try_place(document, places=places)


def _find_large_lists(body: bytes) -> Iterator[_Extent]:
    """Where lists may be that are worth it: between strings, from a bracket to the last one."""
    start = 0
    while start < len(body):
        end = body.find(b'"', start)
        if end < 0:
            end = len(body)
        if end - start >= MIN_ARRAY_BYTES:
            opening = body.find(b"[", start, end)
            brace = body.find(b"}", start, end)
            closing = body.rfind(b"]", start, end if brace < 0 else brace) + 1
            if start <= opening < closing:
                yield opening, closing
        # Past the string, if it is closed.
        start = body.find(b'"', end + 1) + 1 or len(body)


def _try_read_array(body: bytes, *, start: int, end: int) -> Tensor | None:
    is_integer = not any(body.find(mark, start, end) >= 0 for mark in (b".", b"e", b"E"))
    numbers: Tensor = np.empty(
        body.count(_COMMA, start, end) + 1, np.int64 if is_integer else np.float64
    )
    skeleton: list[bytes] = []
    num_read = 0
    while start < end:
        cut = body.find(_COMMA, start + _PIECE_BYTES, end)
        piece = body[start : cut if cut >= 0 else end]
        structure = _try_read_structure(piece)
        values = _try_read_numbers(piece, type_code="q" if is_integer else "d")
        if structure is None or values is None or num_read + len(values) > len(numbers):
            return None
        skeleton.append(structure)
        numbers[num_read : num_read + len(values)] = np.frombuffer(values, numbers.dtype)
        num_read += len(values)
        start += len(piece) + len(_COMMA)
    shape = _try_find_shape(_COMMA.join(skeleton))
    if shape is None or num_read != len(numbers) or prod(shape) != num_read:
        return None
    return numbers.reshape(shape)


def _try_read_structure(piece: bytes) -> bytes | None:
    """What is left of a piece without its numbers; None if one touches a bracket's outside."""
    compact = piece.translate(_TO_DIGITS, _WHITESPACE)
    # Searching for "0[" would stop at every digit.
    codes = np.frombuffer(compact, np.uint8)
    is_digit = codes == ord(_DIGIT)
    is_before = is_digit[:-1] & (codes[1:] == ord("["))
    is_after = is_digit[1:] & (codes[:-1] == ord("]"))
    if is_before.any() or is_after.any():
        return None
    return compact.translate(None, _DIGIT)


def _try_read_numbers(piece: bytes, *, type_code: str) -> "array[float] | None":
    try:
        return array(type_code, orjson.loads(b"[" + piece.translate(_TO_BLANKS) + b"]"))
    except (orjson.JSONDecodeError, OverflowError, TypeError):
        return None


def _try_find_shape(skeleton: bytes) -> tuple[int, ...] | None:
    """The shape of the regular array whose brackets and commas these are."""
    rank = len(skeleton) - len(skeleton.lstrip(b"["))
    if rank > MAX_RANK:
        return None
    sizes: list[int] = []
    expected = b""
    for level in range(1, rank + 1):
        closing = skeleton.find(b"]" * level)
        # An array inside is followed by a comma, or by the bracket.
        size = (closing + level - (rank - level) - 1) // (len(expected) + 1)
        if closing < 0 or len(expected) * size > len(skeleton):
            return None
        expected = b"[" + _COMMA.join([expected] * size) + b"]"
        sizes.append(size)
    return tuple(reversed(sizes)) if expected == skeleton else None


def _try_place(document: object, *, places: Mapping[str, Tensor]) -> dict[str, object] | None:
    """The document with all arrays in their places; None if one stands somewhere else."""
    if not isinstance(document, dict):
        return None
    num_placed = _place(document, places=places)
    inputs, instances = document.get("inputs"), document.get("instances")
    if isinstance(inputs, dict):
        num_placed += _place(inputs, places=places)
    if isinstance(instances, list):
        for instance in instances:
            if isinstance(instance, dict):
                num_placed += _place(instance, places=places)
    return document if num_placed == len(places) else None


def _place(members: dict[str, object], *, places: Mapping[str, Tensor]) -> int:
    found = {
        name: places[value]
        for name, value in members.items()
        if isinstance(value, str) and value in places
    }
    members.update(found)
    return len(found)
