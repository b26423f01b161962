"""Groups texts of a batch by length, so that a short one is not computed as if it were long."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# A group costs a run; below this many tokens padding is cheaper than another one.
_SMALL_TOKENS = 32


def group_by_length(lengths: Sequence[int] | npt.NDArray[np.int32]) -> list[npt.NDArray[np.int64]]:
    """The rows of each group, together all rows. Padding at most doubles the length of a row."""
    order = np.argsort(lengths, kind="stable")
    groups: list[list[int]] = []
    limit = 0
    for row in order.tolist():
        if lengths[row] > limit:
            groups.append([])
            limit = max(2 * int(lengths[row]), _SMALL_TOKENS)
        groups[-1].append(row)
    return [np.array(group, np.int64) for group in groups]
