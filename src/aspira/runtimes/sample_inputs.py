"""Inputs to try a signature with, where nobody has recorded any."""

from collections.abc import Iterator

import numpy as np

from aspira.contracts.signatures import Shape, Signature, TensorSpec
from aspira.contracts.tensors import Tensor, Tensors

_SEED = 0
# For sizes that a signature leaves open, but for the first: texts are short, images are not.
OPEN_SIZES = (8, 64, 224)


def generate_inputs(signature: Signature, *, batch_size: int, open_size: int) -> Tensors | None:
    """The same values at each call; None where a shape is unknown or a dtype has no numbers.

    Floats are in [-1, 1), integers 0 or 1, which are indices and masks for all that use them so.
    """
    random = np.random.default_rng(_SEED)
    inputs = {}
    for alias, spec in signature.inputs.items():
        tensor = _generate(spec, batch_size=batch_size, open_size=open_size, random=random)
        if tensor is None:
            return None
        inputs[alias] = tensor
    return inputs


def has_open_batch(signature: Signature) -> bool:
    """Whether the first size of each input is open, and no other."""
    return bool(signature.inputs) and all(
        spec.shape and spec.shape[0] is None and None not in spec.shape[1:]
        for spec in signature.inputs.values()
    )


def open_sizes(signature: Signature) -> Iterator[int]:
    """The sizes worth trying for what is open besides the first: one is enough if nothing is."""
    is_open = any(None in (spec.shape or ())[1:] for spec in signature.inputs.values())
    yield from OPEN_SIZES if is_open else OPEN_SIZES[:1]


def _generate(
    spec: TensorSpec, *, batch_size: int, open_size: int, random: np.random.Generator
) -> Tensor | None:
    dtype = spec.dtype.numpy_dtype
    if spec.shape is None or dtype is None or dtype.names:
        return None
    shape = _fill(spec.shape, batch_size=batch_size, open_size=open_size)
    if dtype.kind in "iub":
        return random.integers(0, 2, size=shape).astype(dtype)
    if dtype.kind == "O":
        return None
    # Floats of ml_dtypes have a kind of their own.
    return random.uniform(-1, 1, size=shape).astype(dtype)


def _fill(shape: Shape, *, batch_size: int, open_size: int) -> tuple[int, ...]:
    first = [batch_size if size is None else size for size in shape[:1]]
    return (*first, *(open_size if size is None else size for size in shape[1:]))
