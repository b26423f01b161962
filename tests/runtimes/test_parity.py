from functools import partial

import numpy as np
import pytest

from aspira.contracts.tensors import Tensor
from aspira.runtimes.parity import Distance, Tolerance, farthest, measure_distance, measure_speed

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        (np.float32([1, -4]), np.float32([1, -3]), 0.25),
        (np.float32([0, 0]), np.float32([0, 0.5]), 0.5),
        (np.float32([NAN, INF, -INF, 2]), np.float32([NAN, INF, -INF, 2]), 0),
        (np.float16([2]), np.float16([1]), 0.5),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 0),
        (np.float32(3), np.float32(3), 0),
    ],
)
def test_floats(expected: Tensor, found: Tensor, difference: float) -> None:
    distance = measure_distance({"y": np.asarray(expected)}, found={"y": np.asarray(found)})
    assert distance == Distance(difference=difference)


def test_what_is_counted_is_equal_or_not() -> None:
    expected = {"label": np.int64([1, 2, 3]), "is_hot": np.array([True])}
    found = {"label": np.int64([1, 2, 9]), "is_hot": np.array([True])}
    distance = measure_distance(expected, found=found)
    assert distance == Distance(num_mismatches=1, num_compared=4)
    assert not distance.is_within(Tolerance(1))
    assert distance.is_within(Tolerance(0, mismatch=0.25))
    assert str(distance) == "0.0e+00 of the largest value, 25.0% of the integers"


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"z": np.float32([1])}, "outputs ['z'] instead of ['y']"),
        ({"y": np.float64([1])}, "output y is float64[1] instead of float32[1]"),
        ({"y": np.float32([[1]])}, "output y is float32[1, 1] instead of float32[1]"),
        ({"y": np.float32([NAN])}, "output y is infinite or no number in other places"),
        ({"y": np.float32([INF])}, "output y is infinite or no number in other places"),
    ],
)
def test_what_no_tolerance_allows(found: dict[str, Tensor], problem: str) -> None:
    distance = measure_distance({"y": np.float32([1])}, found=found)
    assert distance.problem == problem
    assert str(distance) == problem
    assert not distance.is_within(Tolerance(1e9, mismatch=1))


def test_the_worst_of_several_counts() -> None:
    worst = farthest([Distance(0.1, 1, 2), Distance(0.3, 0, 6), Distance(problem="p")])
    assert worst == Distance(0.3, 1, 8, "p")


def test_speeds_are_taken_in_turn() -> None:
    ran: list[str] = []
    times = measure_speed(
        [[partial(ran.append, "a"), partial(ran.append, "b")], [partial(ran.append, "c")]]
    )
    assert len(times) == 2
    assert min(times) > 0
    assert "".join(ran) == "abc" * (len(ran) // 3)
    assert len(ran) >= 15
