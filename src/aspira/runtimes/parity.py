"""Compares two runtimes that ought to answer alike: how far apart they are, and which is faster."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aspira.contracts.tensors import Tensor, Tensors

Run = Callable[[], object]
Floats = npt.NDArray[np.float64]

_MIN_ROUNDS = 5
_MAX_ROUNDS = 30
_MEASURE_S = 1.5


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as the same answer.

    `difference` bounds the absolute difference of floats, as a share of the largest magnitude in
    the expected tensor; `mismatch` is the share of other elements that may differ.
    """

    difference: float
    mismatch: float = 0.0


@dataclass(frozen=True, slots=True)
class Distance:
    """How far answers are apart, over all outputs, by the measures of `Tolerance`.

    `problem` is what no number says.
    """

    difference: float = 0.0
    num_mismatches: int = 0
    num_compared: int = 0
    problem: str = ""

    @property
    def mismatch(self) -> float:
        return self.num_mismatches / self.num_compared if self.num_compared else 0.0

    def is_within(self, tolerance: Tolerance) -> bool:
        return (
            not self.problem
            and self.difference <= tolerance.difference
            and self.mismatch <= tolerance.mismatch
        )

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        mismatch = f", {self.mismatch:.1%} of the integers" if self.num_mismatches else ""
        return f"{self.difference:.1e} of the largest value{mismatch}"


def measure_distance(expected: Tensors, *, found: Tensors) -> Distance:
    """How far `found` is from `expected`: all outputs, dtypes and shapes included."""
    if tuple(found) != tuple(expected):
        return Distance(problem=f"outputs {list(found)} instead of {list(expected)}")
    return farthest(
        [_tensor_distance(expected[alias], found=found[alias], alias=alias) for alias in expected]
    )


def farthest(distances: Sequence[Distance]) -> Distance:
    """The worst difference, all mismatches, and the first problem."""
    return Distance(
        max((one.difference for one in distances), default=0.0),
        sum(one.num_mismatches for one in distances),
        sum(one.num_compared for one in distances),
        next((one.problem for one in distances if one.problem), ""),
    )


def measure_speed(contestants: Sequence[Sequence[Run]]) -> list[float]:
    """For each contestant the seconds of all its runs, each taken at its best.

    All run in turn, round after round. The best is what a run takes when nothing else is in the
    way. A median would choose by what the machine happens to do besides: with its CPUs taken, a
    runtime that splits a run among threads waits for the slowest.
    """
    rounds: list[list[list[float]]] = []
    end_s = time.perf_counter() + _MEASURE_S
    while len(rounds) < _MIN_ROUNDS or (len(rounds) < _MAX_ROUNDS and time.perf_counter() < end_s):
        rounds.append([[_time(run) for run in runs] for runs in contestants])
    return [
        sum(min(times) for times in zip(*own_rounds, strict=True))
        for own_rounds in zip(*rounds, strict=True)
    ]


def _time(run: Run) -> float:
    started_s = time.perf_counter()
    run()
    return time.perf_counter() - started_s


def _tensor_distance(expected: Tensor, *, found: Tensor, alias: str) -> Distance:
    if expected.dtype != found.dtype or expected.shape != found.shape:
        return Distance(
            problem=f"output {alias} is {found.dtype}{list(found.shape)} instead of "
            f"{expected.dtype}{list(expected.shape)}"
        )
    if not expected.size:
        return Distance()
    if not np.issubdtype(expected.dtype, np.floating):
        num_mismatches = int(np.count_nonzero(expected != found))
        return Distance(num_mismatches=num_mismatches, num_compared=expected.size)
    # Wide enough for every float that models answer with.
    wide_expected, wide_found = expected.astype(np.float64), found.astype(np.float64)
    is_finite = np.isfinite(wide_expected)
    if not np.array_equal(wide_expected[~is_finite], wide_found[~is_finite], equal_nan=True):
        return Distance(problem=f"output {alias} is infinite or no number in other places")
    if not np.isfinite(wide_found[is_finite]).all():
        return Distance(problem=f"output {alias} is infinite or no number in other places")
    return Distance(
        difference=_relative_difference(wide_expected[is_finite], found=wide_found[is_finite])
    )


def _relative_difference(expected: Floats, *, found: Floats) -> float:
    if not expected.size:
        return 0.0
    difference = float(np.abs(expected - found).max())
    magnitude = float(np.abs(expected).max())
    return difference / magnitude if magnitude else difference
