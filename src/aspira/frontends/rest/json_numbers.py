"""Writes the numbers of a whole array in the reference's decimal format, mostly without a loop.

The reference prints `%.6g` where that reads back as the same value in the tensor's precision, else
`%.9g` (float) or `%.17g` (double), and then appends `.0` to a text with neither `.` nor `e`. What
`json_decades` cannot round to such a text is formatted value by value.
"""

from array import array
from collections.abc import Iterable
from functools import lru_cache
from types import MappingProxyType

import orjson

from aspira.contracts.tensors import Tensor
from aspira.frontends.rest.json_decades import OTHER, print_compact, round_floats

_SINGLE_BYTES = 4
_MIN_VECTORIZED = 40
_OTHER = orjson.dumps(OTHER)
_NON_FINITE = MappingProxyType({b"nan": b"NaN", b"inf": b"Infinity", b"-inf": b"-Infinity"})


def decimal_text(value: float, *, is_single_precision: bool) -> str:
    """One number; with `is_single_precision`, `value` is first rounded to a float32."""
    if is_single_precision:
        value = array("f", (value,))[0]
    (text,) = _format_each([value], is_single_precision=is_single_precision)
    return text.decode("ascii")


def encode_number_rows(values: Tensor, *, separator: bytes) -> list[bytes]:
    """For each row of a 2-D array its numbers (or `true` and `false`), joined by `separator`.

    `values` is float32, float64, bool or of an integer dtype, with at least one column.
    """
    if values.shape[0] == 0:
        return []
    if values.dtype.kind == "f" and values.size < _MIN_VECTORIZED:
        is_single = values.itemsize == _SINGLE_BYTES
        return _encode_few(values, is_single_precision=is_single, separator=separator)
    text = print_numbers(values)
    return text[2:-2].replace(b",", separator).split(b"]" + separator + b"[")


def print_numbers(values: Tensor) -> bytes:
    """An array of at least one dimension as compact JSON, for instance `[[1.0,2.5],[3.0,0.1]]`.

    `values` is as for `encode_number_rows`, of any shape that has no 0 in it.
    """
    if values.dtype.kind != "f":
        return print_compact(values)
    rounded = round_floats(values)
    text = print_compact(rounded.values)
    for shown, wanted in rounded.exponents:
        text = text.replace(shown, wanted)
    if rounded.is_other is None:
        return text
    others = values[rounded.is_other].tolist()
    if rounded.is_every_other_long:
        return text.replace(_OTHER, b"%.17g") % tuple(others)
    is_single = values.itemsize == _SINGLE_BYTES
    texts = _format_each(others, is_single_precision=is_single)
    return text.replace(_OTHER, b"%b") % tuple(texts)


def _encode_few(values: Tensor, *, is_single_precision: bool, separator: bytes) -> list[bytes]:
    numbers: list[float] = values.ravel().tolist()
    text = _few_template(len(numbers), separator=separator) % tuple(numbers)
    texts = text.split(separator)
    read_back = list(map(float, texts))
    if is_single_precision:
        read_back = array("f", read_back).tolist()
    if read_back != numbers:
        texts = _format_each(numbers, is_single_precision=is_single_precision)
    elif text.count(b".") != len(numbers):
        texts = _add_points(texts)
    elif len(values) == 1:
        return [text]
    return _join_rows(texts, num_columns=values.shape[1], separator=separator)


@lru_cache(maxsize=2 * _MIN_VECTORIZED)
def _few_template(num_values: int, *, separator: bytes) -> bytes:
    return separator.join([b"%.6g"] * num_values)


def _join_rows(texts: list[bytes], *, num_columns: int, separator: bytes) -> list[bytes]:
    if num_columns == 1:
        return texts
    return [
        separator.join(texts[start : start + num_columns])
        for start in range(0, len(texts), num_columns)
    ]


def _format_all(values: list[float], *, number_format: bytes) -> list[bytes]:
    return (number_format * len(values) % tuple(values)).split()


def _format_each(values: list[float], *, is_single_precision: bool) -> list[bytes]:
    short = _format_all(values, number_format=b"%.6g ")
    read_back: Iterable[float] = map(float, short)
    if is_single_precision:
        read_back = array("f", read_back)
    long_format = b"%.9g" if is_single_precision else b"%.17g"
    exact = [
        text if back == value else long_format % value
        for text, back, value in zip(short, read_back, values, strict=True)
    ]
    return _add_points(exact)


def _add_points(texts: list[bytes]) -> list[bytes]:
    """With a point in whole numbers, and other names for those that are not finite."""
    return [
        text if b"." in text or b"e" in text else _NON_FINITE.get(text) or text + b".0"
        for text in texts
    ]
