"""Writes ONNX files without the package: protobuf messages by hand."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

_FLOAT, _INT64 = 1, 7


def write_gather(
    path: Path, *, table: npt.NDArray[np.float32], output: str = "last_hidden_state"
) -> None:
    """A model whose hidden states are the rows of a table; its mask is an input that it ignores."""
    dims = b"".join(_number(1, size) for size in table.shape)
    initializer = dims + _number(2, _FLOAT) + _bytes(8, b"table") + _bytes(9, table.tobytes())
    node = _bytes(1, b"table") + _bytes(1, b"input_ids") + _bytes(2, output.encode())
    inputs = (_value(name, kind=_INT64, rank=2) for name in ("input_ids", "attention_mask"))
    graph = (
        _bytes(1, node + _bytes(4, b"Gather"))
        + _bytes(2, b"graph")
        + _bytes(5, initializer)
        + b"".join(_bytes(11, one) for one in inputs)
        + _bytes(12, _value(output, kind=_FLOAT, rank=3))
    )
    path.write_bytes(_number(1, 8) + _bytes(7, graph) + _bytes(8, _number(2, 17)))


def _value(name: str, *, kind: int, rank: int) -> bytes:
    axes = b"".join(_bytes(1, _bytes(2, f"axis{index}".encode())) for index in range(rank))
    tensor = _number(1, kind) + _bytes(2, axes)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
