"""The decimal format, value by value against printf's rules and array by array against that."""

import math

import numpy as np
import pytest

from aspira.frontends.rest.json_numbers import decimal_text, encode_number_rows


def expected_text(value: float, *, dtype: type[np.floating]) -> bytes:
    if math.isnan(value):
        return b"NaN"
    if math.isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    text = f"{value:.6g}"
    if float(dtype(float(text))) != value:
        text = f"{value:.9g}" if dtype is np.float32 else f"{value:.17g}"
    return (text if "." in text or "e" in text else text + ".0").encode()


def assert_written_as_expected(values: np.ndarray) -> None:
    (row,) = encode_number_rows(values.reshape(1, -1), separator=b",")
    dtype = values.dtype.type
    assert row.split(b",") == [expected_text(value, dtype=dtype) for value in values.tolist()]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1 / 3, "0.333333343"),
        (16777216.0, "16777216.0"),
        (1e10, "1e+10"),
        (9e-07, "9e-07"),
        (2.0, "2.0"),
        (-0.0, "-0.0"),
        (1e6, "1e+06"),
        (123456.0, "123456.0"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (1e300, "Infinity"),
    ],
)
def test_single_precision(value: float, text: str) -> None:
    assert decimal_text(value, is_single_precision=True) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1 / 3, "0.33333333333333331"),
        (0.1 + 0.2, "0.30000000000000004"),
        (16777217.0, "16777217.0"),
        (1e300, "1e+300"),
    ],
)
def test_double_precision(value: float, text: str) -> None:
    assert decimal_text(value, is_single_precision=False) == text


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_of_any_bits(dtype: type[np.floating]) -> None:
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    generator = np.random.default_rng(1)
    bits = generator.integers(0, np.iinfo(unsigned).max, 20_000, unsigned, endpoint=True)
    assert_written_as_expected(bits.view(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-18, 1e-15, 1e-9, 1e-5, 1e-3, 1.0, 1e3, 1e6, 1e10, 1e15])
def test_arrays_of_many_and_few_digits(dtype: type[np.floating], scale: float) -> None:
    generator = np.random.default_rng(2)
    for num_digits in range(11):
        assert_written_as_expected((generator.random(500).round(num_digits) * scale).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_around_powers_of_ten_and_ties(dtype: type[np.floating]) -> None:
    powers = np.array([float(f"1e{exponent}") for exponent in range(-20, 19)]).astype(dtype)
    near = [
        np.nextafter(powers, dtype(0)),
        np.nextafter(powers, dtype(np.inf)),
        powers * 2,
        -powers,
    ]
    extremes = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, np.finfo(dtype).max], dtype)
    ties = (np.arange(1, 4096) / 4096 + 7).astype(dtype)
    assert_written_as_expected(np.concatenate([powers, *near, extremes, ties]).astype(dtype))


@pytest.mark.parametrize("num_columns", [1, 2, 50])
@pytest.mark.parametrize("fill", [0.5, 1 / 3, 1e-9])
def test_rows_and_separators(num_columns: int, fill: float) -> None:
    values = np.full((3, num_columns), fill, np.float32)
    text = expected_text(float(values[0, 0]), dtype=np.float32)
    rows = encode_number_rows(values, separator=b",\n  ")
    assert rows == [b",\n  ".join([text] * num_columns)] * 3


@pytest.mark.parametrize(
    "dtype",
    [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64],
)
def test_integers(dtype: type[np.integer]) -> None:
    limits = np.iinfo(dtype)
    rows = encode_number_rows(np.array([[limits.min, limits.max]], dtype), separator=b", ")
    assert rows == [f"{limits.min}, {limits.max}".encode()]


def test_booleans() -> None:
    rows = encode_number_rows(np.array([[True], [False]]), separator=b", ")
    assert rows == [b"true", b"false"]


def test_no_rows() -> None:
    assert encode_number_rows(np.zeros((0, 3), np.float32), separator=b", ") == []


def test_a_view_that_is_not_contiguous() -> None:
    values = np.arange(12, dtype=np.int64).reshape(3, 4).T
    assert encode_number_rows(values, separator=b",")[1] == b"1,5,9"
