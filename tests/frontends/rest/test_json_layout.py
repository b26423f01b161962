"""Large results are written in pieces: the same bytes as otherwise, in little memory."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from aspira.frontends.rest.json_response import encode_predictions

random = np.random.default_rng(3)
NAMES = ("a", "b%")


def numbers(*shape: int) -> np.ndarray:
    return random.integers(-1000, 1000, shape)


def on_one_line(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    return f"[{', '.join(map(on_one_line, value))}]"


def indented(value: object, *, depth: int) -> str:
    if not isinstance(value, list):
        return str(value)
    before, after = "\n" + "    " * (depth + 1), "\n" + "    " * depth
    elements = [before + indented(element, depth=depth + 1) for element in value]
    return f"[{','.join(elements)}{after}]"


@pytest.mark.parametrize(
    "shape",
    [(300,), (20_000,), (3, 20_000), (9_000, 1), (3_000, 2, 2), (2, 3, 5_000), (2, 1, 1, 9_000)],
)
def test_one_output_of_any_shape(shape: tuple[int, ...]) -> None:
    values = numbers(*shape)
    rows = encode_predictions({"y": values}, is_row_format=True).decode()
    expected = on_one_line(values.tolist())[:-1]
    assert rows == f'{{\n    "predictions": {expected}\n    ]\n}}'
    columns = encode_predictions({"y": values}, is_row_format=False).decode()
    assert columns == f'{{\n    "outputs": {indented(values.tolist(), depth=1)}\n}}'


@pytest.mark.parametrize(
    ("a", "b"), [((5_000,), (5_000, 3)), ((2, 9_000), (2,)), ((300,), (300, 0))]
)
def test_several_outputs(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    outputs = dict(zip(NAMES, (numbers(*a), numbers(*b)), strict=True))
    rows = [
        f'        {{\n            "a": {on_one_line(first.tolist())},\n'
        f'            "b%": {on_one_line(second.tolist())}\n        }}'
        for first, second in zip(*outputs.values(), strict=True)
    ]
    expected = '{\n    "predictions": [\n' + ",\n".join(rows) + "\n    ]\n}"
    assert encode_predictions(outputs, is_row_format=True).decode() == expected


def test_numbers_and_strings_by_column() -> None:
    outputs = {"a": numbers(400), "b%": np.array([b"x"], np.object_), "c": np.int64(7)}
    text = encode_predictions(outputs, is_row_format=False).decode()
    assert text == (
        f'{{\n    "outputs": {{\n        "a": {indented(outputs["a"].tolist(), depth=2)},\n'
        '        "b%": [\n            "x"\n        ],\n        "c": 7\n    }\n}'
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: random.standard_normal((400, 500)).astype(np.float32),
        lambda: random.integers(0, 255, (50, 64, 64, 1), np.uint8),
        lambda: (random.random((1, 200_000)) * 1e-5).astype(np.float32),
    ],
)
@pytest.mark.parametrize("is_row_format", [True, False])
def test_writing_takes_little_more_memory_than_the_text(
    make: Callable[[], np.ndarray], is_row_format: bool
) -> None:
    outputs = {"y": make()}
    tracemalloc.start()
    try:
        body = encode_predictions(outputs, is_row_format=is_row_format)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * len(body)
