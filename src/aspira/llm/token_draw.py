"""Draws one token from one row of logits: temperature, min-p, top-k, top-p, in that order.

Each row is worked on by itself. A row fits in a core's cache, which rows together do not; and so
a draw depends on nothing but its own logits and its own random number.
"""

import numpy as np
import numpy.typing as npt

from aspira.contracts.generation import SamplingParameters
from aspira.llm.token_history import LogitRow

Weights = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

GREEDY_BELOW = 1e-5
"""Temperatures that divide logits out of range; the most likely token is all they leave."""

_PART = 256
"""Weights that are summed together before the cumulative sum, which numpy does one by one."""


def uniform_at(seed: tuple[int, int], *, position: int) -> float:
    """The random number in [0, 1) of a seed at a position, by Philox, a counter-based generator.

    Nothing is carried from draw to draw, so preemption and batch mates cannot change it.
    """
    bits = np.random.Philox(key=np.array(seed, np.uint64), counter=position).random_raw()
    return (int(bits) >> 11) * 2.0**-53


def draw_token(row: LogitRow, *, parameters: SamplingParameters, uniform: float) -> int:
    """The token at `uniform` of the distribution that the parameters leave. `row` is all finite
    or minus infinity, with a finite maximum.
    """
    if not parameters.top_k and parameters.top_p >= 1.0:
        weights = _weights(row, largest=row.max(), parameters=parameters)
        return _index_at(weights, uniform=uniform)
    ids, weights = _choose_candidates(row, parameters=parameters)
    return int(ids[_index_at(weights, uniform=uniform)])


def largest_ids(row: LogitRow, *, count: int) -> Ids:
    """The `count` most likely tokens, most likely first. Equals come in any order."""
    if count < len(row):
        least = np.partition(row, -count)[-count]
        ids = np.flatnonzero(row >= least)
    else:
        ids = np.arange(len(row))
    return ids[np.argsort(-row[ids])[:count]]


def _weights(row: LogitRow, *, largest: np.float32, parameters: SamplingParameters) -> Weights:
    """Probabilities relative to the most likely token's, after temperature and min-p."""
    weights: Weights = row - largest
    weights *= np.float32(1.0 / parameters.temperature)
    np.exp(weights, out=weights)
    if parameters.min_p > 0:
        weights *= weights >= np.float32(parameters.min_p)
    return weights


def _choose_candidates(row: LogitRow, *, parameters: SamplingParameters) -> tuple[Ids, Weights]:
    """The tokens that top-k and top-p leave, most likely first, and their weights."""
    if parameters.top_k:
        ids = largest_ids(row, count=parameters.top_k)
        weights = _weights(row[ids], largest=row[ids[0]], parameters=parameters)
        wanted = parameters.top_p * float(weights.sum())
    else:
        ids, weights, wanted = _find_nucleus(row, parameters=parameters)
    if parameters.top_p < 1.0:
        num_kept = int(np.searchsorted(np.cumsum(weights, dtype=np.float64), wanted)) + 1
        ids, weights = ids[:num_kept], weights[:num_kept]
    return ids, weights


def _find_nucleus(row: LogitRow, *, parameters: SamplingParameters) -> tuple[Ids, Weights, float]:
    """The tokens among which top-p of the whole weight is, most likely first, and that weight.

    Those below 1/V of what top-p leaves out cannot, all together, be part of what it leaves in.
    So only the others have to be sorted.
    """
    weights = _weights(row, largest=row.max(), parameters=parameters)
    total = float(weights.sum())
    ids = np.flatnonzero(weights >= np.float32((1 - parameters.top_p) * total / len(row)))
    weights = weights[ids]
    order = np.argsort(-weights)
    return ids[order], weights[order], parameters.top_p * total


def _index_at(weights: Weights, *, uniform: float) -> int:
    """The index at this share of the whole weight; never one that has no weight."""
    starts = np.arange(0, len(weights), _PART)
    sums = np.cumsum(np.add.reduceat(weights, starts), dtype=np.float64)
    target = uniform * sums[-1]
    part = min(int(np.searchsorted(sums, target, side="right")), len(sums) - 1)
    inside = weights[part * _PART : (part + 1) * _PART]
    before = sums[part - 1] if part else 0.0
    offset = int(np.searchsorted(np.cumsum(inside, dtype=np.float64), target - before, "right"))
    # Sums are rounded: past the end, the last token that has weight is meant.
    return part * _PART + min(offset, int(np.flatnonzero(inside)[-1]))
