"""Takes large conversions off the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# A body or a result of this size takes about as long to convert as a request otherwise takes.
LARGE_BYTES = 256 * 2**10

ResultT = TypeVar("ResultT")


async def on_thread(convert: Callable[[], ResultT]) -> ResultT:
    """Convert on the loop's pool, so that other requests have their turns meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, convert)
