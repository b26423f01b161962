from typing import NamedTuple

import numpy as np
import pytest

from aspira.batching.assemble import (
    can_be_merged,
    check_outputs,
    count_rows,
    join,
    merge,
    shapes_of,
    split,
)
from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.contracts.signatures import Shape, Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors


class Rows(NamedTuple):
    inputs: Tensors
    begin: int
    end: int


def whole(**inputs: Tensor) -> Rows:
    return Rows(inputs, 0, len(next(iter(inputs.values()))))


def floats(*rows: list[float]) -> Tensor:
    return np.array(rows, np.float32)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "Batching Run() must have at least one input tensor"),
        (
            {"x": np.float32(1)},
            "Batching Run() input tensors must have at least one dimension",
        ),
        (
            {"x": np.zeros(2), "y": np.zeros(3)},
            "Batching Run() input tensors must have equal 0th-dimension size",
        ),
    ],
)
def test_requests_without_rows_are_refused(inputs: dict[str, Tensor], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        count_rows({alias: np.asarray(tensor) for alias, tensor in inputs.items()})
    assert caught.value.message == text


def test_rows_are_dimension_0() -> None:
    assert count_rows({"x": np.zeros((3, 2)), "y": np.zeros(3)}) == 3
    assert count_rows({"x": np.zeros((0, 2))}) == 0


@pytest.mark.parametrize(
    ("first", "second", "is_padded", "is_same"),
    [
        (np.zeros((1, 2)), np.zeros((5, 2)), False, True),
        (np.zeros((1, 2)), np.zeros((1, 3)), False, False),
        (np.zeros((1, 2)), np.zeros((1, 3)), True, True),
        (np.zeros((1, 2)), np.zeros((1, 2, 1)), True, False),
        (np.zeros(1, np.float32), np.zeros(1, np.float64), False, False),
        (np.zeros(1, np.float32), np.zeros(1, np.int32), True, False),
    ],
)
def test_what_can_share_a_run(
    first: Tensor, second: Tensor, is_padded: bool, is_same: bool
) -> None:
    shapes = [shapes_of({"x": tensor}, is_padded=is_padded) for tensor in (first, second)]
    assert (shapes[0] == shapes[1]) is is_same


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (np.zeros((1,) * 7), "Only tensors with rank from 1 to 6 can be padded."),
        (np.zeros((1, 0)), "Got empty tensor in batch of non-empty tensors."),
    ],
)
def test_what_cannot_be_padded(tensor: Tensor, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        shapes_of({"x": tensor}, is_padded=True)
    assert caught.value.message == text


def signature(*shapes: Shape | None) -> Signature:
    specs = {str(i): TensorSpec(DataType.FLOAT, shape) for i, shape in enumerate(shapes)}
    inputs = {"0": specs.pop("0")} if shapes else {}
    return Signature(inputs, specs)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (signature((None, 3), (None,)), True),
        (signature(None, (None, 2)), True),
        (signature((1, 3), (None,)), False),
        (signature((None, 3), (8,)), False),
        (signature((None,), ()), False),
        (signature((), (None,)), False),
        (signature(), False),
    ],
)
def test_only_signatures_with_an_open_first_dimension_are_merged(
    of: Signature, expected: bool
) -> None:
    assert can_be_merged(of) is expected


def test_one_request_goes_in_as_it_is() -> None:
    x = floats([1], [2])
    assert merge([whole(x=x)], num_rows=2)["x"] is x


def test_requests_are_merged_in_order() -> None:
    merged = merge([whole(x=floats([1], [2])), whole(x=floats([3]))], num_rows=3)
    assert merged["x"].tolist() == [[1], [2], [3]]


def test_a_part_of_a_request() -> None:
    x = floats([1], [2], [3])
    merged = merge([Rows({"x": x}, 1, 3)], num_rows=2)
    assert merged["x"].tolist() == [[2], [3]]
    assert np.shares_memory(merged["x"], x)


def test_a_batch_is_filled_with_the_first_row_of_the_last_request() -> None:
    merged = merge([whole(x=floats([1])), whole(x=floats([2], [3]))], num_rows=5)
    assert merged["x"].tolist() == [[1], [2], [3], [2], [2]]


def test_a_request_without_rows_has_none_to_fill_with() -> None:
    merged = merge([whole(x=floats([1])), whole(x=np.zeros((0, 1), np.float32))], num_rows=3)
    assert merged["x"].tolist() == [[1], [1], [1]]


def test_strings_are_merged() -> None:
    words = [np.array([b"a", b"b\0"], object), np.array([b"c"], object)]
    merged = merge([whole(x=word) for word in words], num_rows=4)
    assert merged["x"].tolist() == [b"a", b"b\0", b"c", b"c"]


def test_shorter_requests_are_padded_with_their_own_first_element() -> None:
    pieces = [whole(x=floats([7, 2])), whole(x=floats([5, 6, 8])), whole(x=floats([9], [4]))]
    merged = merge(pieces, num_rows=4)
    assert merged["x"].tolist() == [[7, 2, 7], [5, 6, 8], [9, 9, 9], [4, 9, 9]]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (np.float32(1), "Batched output tensor has 0 dimensions"),
        (
            np.zeros(2),
            (
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
                "sizes of the input tensors"
            ),
        ),
    ],
)
def test_outputs_without_a_row_for_each_input(output: Tensor, text: str) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        check_outputs({"y": np.asarray(output)}, num_rows=3)
    assert caught.value.message == text


def test_outputs_go_back_as_views() -> None:
    y = floats([1], [2], [3], [0])
    first, second = split({"y": y}, sizes=[1, 2])
    assert (first["y"].tolist(), second["y"].tolist()) == ([[1]], [[2], [3]])
    assert np.shares_memory(second["y"], y)


def test_parts_are_joined() -> None:
    assert join([{"y": floats([1])}, {"y": floats([2], [3])}])["y"].tolist() == [[1], [2], [3]]
