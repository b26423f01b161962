"""Matrices as quantized files keep them: small integers in groups along a row, a scale for each."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class PackedMatrix(NamedTuple):
    """`values * scales`, [outputs, groups, group size], which stand for [outputs, inputs]."""

    values: npt.NDArray[np.int8]

    scales: npt.NDArray[np.float16]
    """[outputs, groups, 1]"""

    num_bits: int
    """4 or 8: what the values fit into."""


def pack_int8(weight: npt.NDArray[np.float32], *, group_size: int) -> PackedMatrix:
    """Round a matrix to 8 bits. A row that is not made of whole groups becomes one group."""
    rows, columns = weight.shape
    size = columns if columns % group_size else group_size
    groups = weight.reshape(rows, columns // size, size)
    largest = np.abs(groups).max(axis=-1, keepdims=True)
    scales = np.where(largest > 0, largest / np.iinfo(np.int8).max, 1).astype(np.float16)
    values = np.rint(groups / scales.astype(np.float32)).clip(-127, 127).astype(np.int8)
    return PackedMatrix(values, scales, num_bits=8)


def join_rows(matrices: Sequence[PackedMatrix | None]) -> PackedMatrix | None:
    """One matrix of all rows; None if they are not all packed, and in one way."""
    packed = [matrix for matrix in matrices if matrix is not None]
    if len(packed) < len(matrices) or len({matrix.num_bits for matrix in packed}) > 1:
        return None
    return PackedMatrix(
        np.concatenate([matrix.values for matrix in packed]),
        np.concatenate([matrix.scales for matrix in packed]),
        packed[0].num_bits,
    )
