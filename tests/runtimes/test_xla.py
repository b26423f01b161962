from typing import Any

import numpy as np
import pytest

from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor
from aspira.runtimes.signature_graph import StaysOnTensorflow
from aspira.runtimes.xla import XlaSignature


class Doubling:
    """Takes the place of the compiled function: `y` is twice `x`, `n` a number of the batch."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, x: Tensor) -> list[Any]:
        self.sizes.append(len(x))
        return [np.float32(7), x * 2]


SIGNATURE = Signature(
    {"x": TensorSpec(DataType.FLOAT, (None,), "x:0")},
    {"n": TensorSpec(DataType.FLOAT, (), "n:0"), "y": TensorSpec(DataType.FLOAT, (None,), "y:0")},
)


def make(call: Any, *, late: list[str], signature: Signature = SIGNATURE) -> XlaSignature:
    return XlaSignature(
        call, name="s", signature=signature, feeds=("x",), on_late_compile=late.append
    )


def x(size: int) -> dict[str, Tensor]:
    return {"x": np.arange(size, dtype=np.float32)}


@pytest.mark.parametrize(("size", "bucket"), [(1, 1), (2, 4), (3, 4), (4, 4), (5, 8), (8, 8)])
def test_batches_are_filled_up_and_cut_again(size: int, bucket: int) -> None:
    late: list[str] = []
    call = Doubling()
    compiled = make(call, late=late)
    compiled.prepare([x(8), x(1), x(4)])
    answer = compiled.try_run(x(size), outputs=("y", "n"))
    assert answer is not None
    assert list(answer) == ["y", "n"]
    np.testing.assert_array_equal(answer["y"], x(size)["x"] * 2)
    np.testing.assert_array_equal(answer["n"], np.float32(7), strict=True)
    assert call.sizes == [8, 1, 4, bucket]
    assert late == []


@pytest.mark.parametrize("size", [0, 9])
def test_other_batches_are_declined(size: int) -> None:
    compiled = make(Doubling(), late=[])
    compiled.prepare([x(1), x(8)])
    assert compiled.try_run(x(size), outputs=("y",)) is None


def test_a_shape_that_nobody_prepared_is_told() -> None:
    late: list[str] = []
    fixed = Signature({"x": TensorSpec(DataType.FLOAT, (2,), "x:0")}, SIGNATURE.outputs)
    compiled = make(Doubling(), late=late, signature=fixed)
    for _ in range(2):
        assert compiled.try_run(x(2), outputs=("y",)) is not None
    assert late == ["s"]


def test_what_cannot_be_compiled_stays_on_tensorflow() -> None:
    def fail(x: Tensor) -> list[Tensor]:
        raise RuntimeError("no kernel for Enter\nat some place")

    with pytest.raises(StaysOnTensorflow, match=r"^XLA cannot compile it: no kernel for Enter$"):
        make(fail, late=[]).prepare([x(1)])
