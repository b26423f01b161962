"""Merges the inputs of several requests into one run, and gives each its rows of the outputs.

Pure. A batch is a sequence of pieces; a piece is a request's rows, or a part of them. Outputs go
back by position, as views of the run's own arrays.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import Tensor, Tensors

_MAX_PADDED_RANK = 6

Shapes = tuple[tuple[object, ...], ...]


class Rows(Protocol):
    """Rows `begin` to `end` of the inputs of one request."""

    @property
    def inputs(self) -> Tensors: ...

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...


def count_rows(inputs: Tensors) -> int:
    """The size of dimension 0, which all inputs must share.

    Raises:
        InvalidArgument: they do not; the texts are TensorFlow Serving's.
    """
    num_rows = -1
    for tensor in inputs.values():
        if not tensor.ndim:
            raise InvalidArgument("Batching Run() input tensors must have at least one dimension")
        size = tensor.shape[0]
        if num_rows not in {-1, size}:
            raise InvalidArgument("Batching Run() input tensors must have equal 0th-dimension size")
        num_rows = size
    if num_rows < 0:
        raise InvalidArgument("Batching Run() must have at least one input tensor")
    return num_rows


def shapes_of(inputs: Tensors, *, is_padded: bool) -> Shapes:
    """What requests must have in common to share a run: dtypes, and shapes beyond dimension 0.

    With padding it is enough that ranks are equal.

    Raises:
        InvalidArgument: it cannot be padded; the texts are TensorFlow Serving's.
    """
    if not is_padded:
        return tuple([(tensor.dtype.num, tensor.shape[1:]) for tensor in inputs.values()])
    for tensor in inputs.values():
        if tensor.ndim > _MAX_PADDED_RANK:
            raise InvalidArgument("Only tensors with rank from 1 to 6 can be padded.")
        if not tensor.size:
            raise InvalidArgument("Got empty tensor in batch of non-empty tensors.")
    return tuple((tensor.dtype.num, tensor.ndim) for tensor in inputs.values())


def can_be_merged(signature: Signature) -> bool:
    """Whether a signature leaves dimension 0 open in all that goes in and comes out.

    TensorFlow Serving batches other signatures too, and fails every request to them.
    """
    specs = (*signature.inputs.values(), *signature.outputs.values())
    return bool(signature.inputs) and all(_is_open(spec) for spec in specs)


def _is_open(spec: TensorSpec) -> bool:
    if spec.shape is None:
        return True
    return bool(spec.shape) and spec.shape[0] is None


def merge(pieces: Sequence[Rows], *, num_rows: int) -> Tensors:
    """The inputs of one run over all pieces, filled up to `num_rows`.

    Rows that are filled in repeat the first row of the last piece that has rows. Tensors of
    different shapes are padded at the end of each dimension with their own first element.
    """
    missing = num_rows - sum([piece.end - piece.begin for piece in pieces])
    if len(pieces) == 1 and not missing:
        return _cut(pieces[0])
    return {
        alias: _merge_tensors([_rows_of(piece, alias=alias) for piece in pieces], missing=missing)
        for alias in pieces[0].inputs
    }


def _cut(piece: Rows) -> Tensors:
    return {alias: _rows_of(piece, alias=alias) for alias in piece.inputs}


def _rows_of(piece: Rows, *, alias: str) -> Tensor:
    tensor = piece.inputs[alias]
    is_whole = piece.begin == 0 and piece.end == tensor.shape[0]
    return tensor if is_whole else tensor[piece.begin : piece.end]


def _merge_tensors(tensors: list[Tensor], *, missing: int) -> Tensor:
    if missing:
        row = next(tensor[:1] for tensor in reversed(tensors) if len(tensor))
        tensors.append(np.broadcast_to(row, (missing, *row.shape[1:])))
    try:
        return np.concatenate(tensors)
    except ValueError:  # shapes differ, which is rare and would take long to look for
        return np.concatenate(_pad_to_largest(tensors))


def _pad_to_largest(tensors: list[Tensor]) -> list[Tensor]:
    largest = tuple(max(sizes) for sizes in zip(*(t.shape[1:] for t in tensors), strict=True))
    return [_pad(tensor, shape=(tensor.shape[0], *largest)) for tensor in tensors]


def _pad(tensor: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    if tensor.shape == shape:
        return tensor
    padded = np.empty(shape, tensor.dtype)
    padded[...] = tensor[(0,) * tensor.ndim]
    padded[tuple(slice(size) for size in tensor.shape)] = tensor
    return padded


def check_outputs(outputs: Tensors, *, num_rows: int) -> None:
    """Whether each output has a row for each row that went in.

    Raises:
        FailedPrecondition: it has not; the texts are TensorFlow Serving's.
    """
    for tensor in outputs.values():
        if not tensor.ndim:
            raise FailedPrecondition("Batched output tensor has 0 dimensions")
        if tensor.shape[0] != num_rows:
            raise FailedPrecondition(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension "
                "sizes of the input tensors"
            )


def split(outputs: Tensors, *, sizes: Sequence[int]) -> Sequence[Tensors]:
    """The rows of each piece, in their order, as views."""
    parts: list[dict[str, Tensor]] = [{} for _ in sizes]
    for alias, tensor in outputs.items():
        begin = 0
        for part, size in zip(parts, sizes, strict=True):
            end = begin + size
            part[alias] = tensor[begin:end]
            begin = end
    return parts


def join(parts: Sequence[Mapping[str, Tensor]]) -> Tensors:
    """The outputs of a request that was spread over several runs."""
    return {alias: np.concatenate([part[alias] for part in parts]) for alias in parts[0]}
