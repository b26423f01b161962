"""Takes large conversions off the event loop."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from aspira.contracts.tensors import Tensor

# A body or a result of this size takes about as long to convert as a request otherwise takes.
LARGE_BYTES = 256 * 2**10
# Messages of tensors are parsed by copying what they hold, in some 15 us for this size; what is one
# number or string after the other takes up to 2.6 ms.
LARGE_MESSAGE_BYTES = 2**20
# Numbers and strings that become objects one by one on the way into an array: 0.3 ms.
MANY_VALUES = 16 * 2**10
# Examples and classes become objects one by one, which takes some sixteen times as long per byte as
# converting tensors.
LARGE_EXAMPLES_BYTES = 16 * 2**10

ResultT = TypeVar("ResultT")


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """What tensors hold; a string counts as a pointer."""
    num_bytes = 0
    for tensor in tensors:
        num_bytes += tensor.nbytes
    return num_bytes


async def on_thread(convert: Callable[[], ResultT]) -> ResultT:
    """Convert on the loop's pool, so that other requests have their turns meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, convert)
