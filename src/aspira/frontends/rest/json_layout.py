"""Lays nested arrays out as the reference does, those of numbers block by block.

A block is compact JSON of a few thousand values, in which brackets and commas are replaced by
constant texts. So what is needed beside the result does not grow with it, and stays in the CPU's
cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aspira.contracts.tensors import Tensor
from aspira.frontends.rest.json_numbers import print_numbers

_INDENT = b"    "
_BLOCK_VALUES = 8 * 2**10


def new_line(depth: int) -> bytes:
    """Ends a line and indents the next one."""
    return b"\n" + _INDENT * depth


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a value stands: inside `depth` containers, its arrays on one line or not."""

    depth: int
    is_single_line: bool

    def separator(self, level: int) -> bytes:
        """Between the elements of an array `level` levels below this value."""
        return b", " if self.is_single_line else b"," + new_line(self.depth + level)

    def opening(self, level: int) -> bytes:
        """Begins that array."""
        return b"[" if self.is_single_line else b"[" + new_line(self.depth + level)

    def closing(self, level: int) -> bytes:
        """Ends that array."""
        return b"]" if self.is_single_line else new_line(self.depth + level - 1) + b"]"

    def enclose(self, elements: bytes, *, level: int) -> bytes:
        """That array, from the text between its brackets."""
        return self.opening(level) + elements + self.closing(level)


def lay_out_numbers(tensor: Tensor, *, layout: Layout, level: int = 1) -> Iterator[bytes]:
    """Pieces of the text between the brackets of an array of numbers, `level` levels down.

    `tensor` has at least one dimension, and no 0 in its shape.
    """
    num_inner = tensor.size // len(tensor)
    num_elements = _BLOCK_VALUES // num_inner
    if num_elements >= len(tensor):
        yield _lay_out_block(tensor, layout=layout, level=level)
    elif num_elements or tensor.ndim == 1:
        for start in range(0, len(tensor), num_elements):
            if start:
                yield layout.separator(level)
            block = tensor[start : start + num_elements]
            yield _lay_out_block(block, layout=layout, level=level)
    else:
        for index, element in enumerate(tensor):
            yield (layout.separator(level) if index else b"") + layout.opening(level + 1)
            yield from lay_out_numbers(element, layout=layout, level=level + 1)
            yield layout.closing(level + 1)


def _lay_out_block(block: Tensor, *, layout: Layout, level: int) -> bytes:
    rank = block.ndim
    text = print_numbers(np.ascontiguousarray(block))[rank:-rank]
    innermost = level + rank - 1
    separator = layout.separator(innermost)
    text = text.replace(b",", separator)
    opening, closing = b"", b""
    between = []
    for outer in range(innermost - 1, level - 1, -1):
        opening = layout.opening(outer + 1) + opening
        closing = closing + layout.closing(outer + 1)
        between.append(closing + layout.separator(outer) + opening)
    if not layout.is_single_line:
        # The most brackets first: others are found in them.
        for num_brackets in range(rank - 1, 0, -1):
            compact = b"]" * num_brackets + separator + b"[" * num_brackets
            text = text.replace(compact, between[num_brackets - 1])
    return opening + text + closing
