"""Rounds floats so that a fast printer of shortest digits writes the reference's text for them.

Up to 15 significant digits, the shortest text that reads back as a given double is those digits. So
a value is brought to its 6 or 9 digits by arithmetic, which depends on its decade alone. Where the
reference writes an exponent and the printer none, or the printer another one, the value is moved to
a decade that nothing else is in, whose exponent is then replaced in the text. What arithmetic
cannot decide for certain is left to the caller.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from aspira.contracts.tensors import Tensor

_Doubles = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.intp]
_Mask = npt.NDArray[np.bool_]

OTHER = 1e31
"""Stands where the caller is to write something else; never the text of anything else."""

_SINGLE_BYTES = 4
_SHORT_DIGITS = 6
_LONG_DIGITS = 9
_SINGLE_MANTISSA = 23
_DOUBLE_MANTISSA = 52
# Beyond, the powers of ten that are needed are no longer exact as doubles.
_FIRST, _LAST = -17, 15
_DECADES = range(_FIRST, _LAST + 1)
# By index: what is below the first decade, the decades, what is above the last.
_BELOW, _ABOVE = 0, len(_DECADES) + 1
_NUM_INDICES = len(_DECADES) + 2
_FIXED_SHORT = range(-4, _SHORT_DIGITS)
_FIXED_LONG = range(-4, _LONG_DIGITS)
# The printer writes the first ones with an exponent too, as it does everything from 1e16 on.
_KEPT = range(-14, -5)
_MOVED: Mapping[int, int] = MappingProxyType(
    dict(zip([*range(6, 16), -17, -16, -15, -5], [*range(16, 26), 27, 28, 29, 30], strict=True))
)
# A single at 9 digits is off by less than 3e-7 where its power of ten is not exact.
_CERTAIN = 0.5 - 3e-7
_MAX_WHOLE = 2.0**53
_TO_SHORT = 10.0 ** (_SHORT_DIGITS - _LONG_DIGITS)
_TO_LONG = 10.0 ** (_LONG_DIGITS - _SHORT_DIGITS)


class Rounded(NamedTuple):
    """Doubles to print, and what to replace in their text: exponents, then each `OTHER`.

    `is_other` is None if there are none. With `is_every_other_long` they are fractions that no 6
    digits read back as.
    """

    values: _Doubles
    exponents: tuple[tuple[bytes, bytes], ...]
    is_other: _Mask | None
    is_every_other_long: bool


def round_floats(values: Tensor) -> Rounded:
    """What to print for float32 or float64 values, of any shape, in C order."""
    # Infinities, and NaNs that signal, would warn at every step.
    with np.errstate(over="ignore", invalid="ignore"):
        return _round(values, is_single=values.itemsize == _SINGLE_BYTES)


def _round(values: Tensor, *, is_single: bool) -> Rounded:
    powers = _powers()
    magnitude = np.abs(values)
    doubles = magnitude.astype(np.float64)
    decades = _find_decades(magnitude, doubles=doubles)
    scaled = doubles * powers.to_long[decades]
    # A tie here is no matter: neither neighbour reads back as the value.
    short = np.rint(scaled * _TO_SHORT)
    read_back = short * powers.short_up[decades] / powers.short_down[decades]
    is_short = read_back.astype(values.dtype) == magnitude
    long = np.rint(scaled)
    form = decades + is_short * _NUM_INDICES
    shown = np.where(is_short, short * _TO_LONG, long)
    shown = shown * powers.shown_up[form] / powers.shown_down[form]
    counts = np.bincount(form.ravel(), minlength=2 * _NUM_INDICES)
    has_strange = bool(counts[_BELOW] or counts[_ABOVE])
    is_other = np.zeros(values.shape, np.bool_)
    if has_strange:
        is_other |= (form == _BELOW) | (form == _ABOVE)
    if not is_single:
        is_whole = np.rint(doubles) == doubles
        is_large = is_whole & (doubles >= _MAX_WHOLE)
        has_strange |= bool(is_large.any())
        is_other |= ~(is_short | is_whole) | is_large & ~is_short
        shown = np.where(is_short, shown, doubles)
    elif counts[powers.is_rounded].any():
        is_other |= powers.is_rounded[form] & (np.abs(long - scaled) > _CERTAIN)
    shown = np.copysign(shown, values)
    has_other = bool(is_other.any())
    if has_other:
        shown[is_other] = OTHER
    exponents = [found for index in np.flatnonzero(counts) for found in powers.exponents[index]]
    return Rounded(
        shown,
        tuple(dict.fromkeys(exponents)),
        is_other if has_other else None,
        not (is_single or has_strange),
    )


def print_compact(values: Tensor) -> bytes:
    """The printer: brackets, commas, and shortest digits."""
    contiguous = np.ascontiguousarray(values)
    return orjson.dumps(contiguous, option=orjson.OPT_SERIALIZE_NUMPY)


def _find_decades(magnitude: Tensor, *, doubles: _Doubles) -> _Indices:
    """Each value's decade, by index."""
    is_single = magnitude.itemsize == _SINGLE_BYTES
    starts = _decade_starts(is_single=is_single)
    bits: _Indices = magnitude.view(np.int32 if is_single else np.int64)
    binary = bits >> (_SINGLE_MANTISSA if is_single else _DOUBLE_MANTISSA)
    found: _Indices = starts.first[binary] + (doubles >= starts.next_bound[binary])
    return found


class _DecadeStarts(NamedTuple):
    """Per biased binary exponent: the decade of its least value, and where the next one starts."""

    first: _Indices
    next_bound: _Doubles


@cache
def _decade_starts(*, is_single: bool) -> _DecadeStarts:
    num_exponents, bias = (2**8, 127) if is_single else (2**11, 1023)
    with np.errstate(over="ignore"):
        least = np.ldexp(1.0, np.arange(num_exponents) - bias)
    # Zero, and what has too few digits to be rounded by these rules.
    least[0] = 0.0
    powers = np.array([float(f"1e{decade}") for decade in [*_DECADES, _LAST + 1]])
    if is_single:
        # The single next to a power of ten is written as that, though it may be less.
        powers = powers.astype(np.float32).astype(np.float64)
    first = np.searchsorted(powers, least, side="right")
    # Infinity is not greater than NaN.
    bounds = np.append(powers, np.nan)
    return _DecadeStarts(first, bounds[first])


class _Powers(NamedTuple):
    """What brings values where they are wanted: by decade, then by form.

    A form is a decade with 9 digits or, `_NUM_INDICES` further on, with 6. Of two arrays, the one
    is to multiply with, the other to divide by; one of them is 1, and both are exact.
    """

    to_long: _Doubles
    short_up: _Doubles
    short_down: _Doubles
    shown_up: _Doubles
    shown_down: _Doubles
    is_rounded: _Mask
    exponents: tuple[tuple[tuple[bytes, bytes], ...], ...]


@cache
def _powers() -> _Powers:
    to_long = [0.0, *(float(f"1e{_LONG_DIGITS - 1 - decade}") for decade in _DECADES), 0.0]
    to_short = [_SHORT_DIGITS - 1 - decade for decade in (0, *_DECADES, 0)]
    shown = [*_shown_decades(_FIXED_LONG), *_shown_decades(_FIXED_SHORT)]
    to_shown = [_LONG_DIGITS - 1 - decade for decade in shown]
    is_rounded = [False, *(decade not in _FIXED_LONG for decade in _DECADES), False]
    real = [0, *_DECADES, 0] * 2
    return _Powers(
        np.array(to_long),
        _ten_to(-power for power in to_short),
        _ten_to(to_short),
        _ten_to(-power for power in to_shown),
        _ten_to(to_shown),
        np.array(is_rounded + [False] * _NUM_INDICES),
        tuple(
            _replacements(decade, shown=place) for decade, place in zip(real, shown, strict=True)
        ),
    )


def _shown_decades(fixed: range) -> list[int]:
    """The decade in which to print, by index."""
    shown = [
        decade if decade in fixed or decade in _KEPT else _MOVED[decade] for decade in _DECADES
    ]
    return [0, *shown, 0]


def _ten_to(powers: Iterable[int]) -> _Doubles:
    return np.array([10.0 ** max(power, 0) for power in powers])


def _replacements(decade: int, *, shown: int) -> tuple[tuple[bytes, bytes], ...]:
    """The exponent as printed, and as the reference writes it, if they differ."""
    _, mark, exponent = orjson.dumps(float(f"1e{shown}")).partition(b"e")
    wanted = b"e%+03d" % decade
    return ((mark + exponent, wanted),) if mark and mark + exponent != wanted else ()
