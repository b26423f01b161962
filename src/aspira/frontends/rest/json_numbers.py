"""Writes the numbers of a whole array in the reference's decimal format, mostly without a loop.

The reference prints `%.6g` where that reads back as the same value in the tensor's precision, else
`%.9g` (float) or `%.17g` (double), and then appends `.0` to a text with neither `.` nor `e`. Up to
15 significant digits, the shortest text that reads back as a given double is those digits, so a
value is rounded to its 6 or 9 digits by arithmetic and the array goes to a fast shortest-digits
printer. What arithmetic cannot decide for certain, or prints with an exponent, is formatted value
by value.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import orjson

from aspira.contracts.tensors import Tensor

_Doubles = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]

_SINGLE_BYTES = 4
_MIN_VECTORIZED = 40
_EXPONENTS = tuple(range(-4, 9))
_MIN_PLAIN = 1e-4
_MAX_PLAIN_SHORT = 1e6
_MAX_PLAIN_LONG = 1e9
_SHORT_DIGITS = 6
_LONG_DIGITS = 9
# Scaled to 9 digits, a float32 is off by less than 1e-7.
_TIE_MARGIN = 1e-5
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
    if values.dtype.kind == "f":
        return _encode_float_rows(values, separator=separator)
    return _print_rows(values, separator=separator)


def _print_rows(values: Tensor, *, separator: bytes) -> list[bytes]:
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)
    return text[2:-2].replace(b",", separator).split(b"]" + separator + b"[")


def _encode_float_rows(values: Tensor, *, separator: bytes) -> list[bytes]:
    is_single = values.itemsize == _SINGLE_BYTES
    if values.size < _MIN_VECTORIZED:
        return _encode_few(values, is_single_precision=is_single, separator=separator)
    # Infinities, and NaNs that signal, would warn at every step.
    with np.errstate(over="ignore", invalid="ignore"):
        doubles = values.astype(np.float64)
        rounded = _round_single(doubles) if is_single else _round_double(doubles)
    if rounded.is_printable.all():
        return _print_rows(rounded.values, separator=separator)
    texts = _format_groups(doubles, rounded=rounded, is_single_precision=is_single)
    return _join_rows(texts, num_columns=values.shape[1], separator=separator)


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


@dataclass(frozen=True, slots=True)
class _Rounded:
    """Doubles whose shortest text is the reference's text, where `is_printable`.

    Where `is_long`, the reference's text is known to be that of `%.17g`, with a point in it.
    """

    values: _Doubles
    is_printable: _Mask
    is_long: _Mask


def _format_groups(
    values: _Doubles, *, rounded: _Rounded, is_single_precision: bool
) -> list[bytes]:
    texts = np.empty(values.shape, np.object_)
    if rounded.is_printable.any():
        printable = rounded.values[rounded.is_printable]
        texts[rounded.is_printable] = _print_rows(printable[np.newaxis], separator=b",")[0].split(
            b","
        )
    if rounded.is_long.any():
        texts[rounded.is_long] = _format_all(
            values[rounded.is_long].tolist(), number_format=b"%.17g "
        )
    others = ~(rounded.is_printable | rounded.is_long)
    texts[others] = _format_each(values[others].tolist(), is_single_precision=is_single_precision)
    ordered: list[bytes] = texts.ravel().tolist()
    return ordered


def _round_single(values: _Doubles) -> _Rounded:
    magnitude = np.abs(values)
    exponent = _exponent_index(magnitude)
    short = _round_short(values, exponent=exponent)
    is_short = short.astype(np.float32) == values
    scale = _powers_of_ten(_LONG_DIGITS)[exponent]
    scaled = values * scale
    is_certain = np.abs(scaled - np.floor(scaled) - 0.5) > _TIE_MARGIN
    rounded = np.where(is_short, short, np.rint(scaled) / scale)
    limit = np.where(is_short, _MAX_PLAIN_SHORT, _MAX_PLAIN_LONG)
    is_printable = (is_short | is_certain) & (magnitude >= _MIN_PLAIN) & (np.abs(rounded) < limit)
    is_printable |= values == 0
    return _Rounded(rounded, is_printable, np.zeros_like(is_printable))


def _round_double(values: _Doubles) -> _Rounded:
    """`%.17g` may show more digits than the shortest text, but not of whole numbers this small."""
    magnitude = np.abs(values)
    is_short = _round_short(values, exponent=_exponent_index(magnitude)) == values
    is_whole = np.rint(values) == values
    is_plain = (magnitude >= _MIN_PLAIN) & (magnitude < _MAX_PLAIN_LONG)
    is_printable = is_plain & np.where(is_short, magnitude < _MAX_PLAIN_SHORT, is_whole)
    is_long = is_plain & ~is_short & ~is_whole
    return _Rounded(values, is_printable | (values == 0), is_long)


def _exponent_index(magnitude: _Doubles) -> npt.NDArray[np.intp]:
    """Index into `_EXPONENTS` of the decimal exponent, clipped at both ends."""
    bounds = [float(f"1e{exponent}") for exponent in _EXPONENTS[1:]]
    return np.searchsorted(bounds, magnitude, side="right")


def _powers_of_ten(num_digits: int) -> _Doubles:
    """Per exponent, what brings a number to `num_digits` digits before the point, or 1."""
    return np.array([10.0 ** max(num_digits - 1 - exponent, 0) for exponent in _EXPONENTS])


def _round_short(values: _Doubles, *, exponent: npt.NDArray[np.intp]) -> _Doubles:
    """To 6 significant digits. Each step but the last is exact in doubles once it is rounded."""
    powers = _powers_of_ten(_SHORT_DIGITS)
    excess = np.array([10.0 ** max(place - _SHORT_DIGITS + 1, 0) for place in _EXPONENTS])
    up, down = powers[exponent], excess[exponent]
    rounded: _Doubles = np.rint(values * up / down) * down / up
    return rounded


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
