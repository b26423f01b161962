"""How many rows a batch may have so that requests are answered within the latency target.

A request that comes just after a batch was taken waits for that batch and then for its own. So a
run may last half the target. The line through past runs (`cost_model.py`) says how many rows fit;
where runs turn out longer than it says, the limit is cut, and given back little by little.
"""

from aspira.batching.cost_model import CostModel

# The line gives a mean, the target is for 99 of 100 requests.
_SAFETY = 0.8
_CUT = 0.8
_GIVE_BACK = 0.02
_MIN_TRUST = 0.1
_FIXED_SHARE = 0.5
# Growing by no more than this beyond what was tried keeps a guess from costing much.
_GROWTH = 2


class BatchLimit:
    """`rows` is the largest batch to take now. Without a target it is the largest allowed."""

    def __init__(self, cost_model: CostModel, *, max_rows: int, target_s: float) -> None:
        self._cost_model = cost_model
        self._max_rows = max_rows
        self._max_run_s = target_s / 2
        self._trust = 1.0
        self._largest_tried = 1
        self.rows = 1 if target_s else max_rows

    def observe(self, num_rows: int, *, run_s: float) -> None:
        """Learn from a run that `cost_model` has observed already."""
        if not self._max_run_s:
            return
        self._largest_tried = max(self._largest_tried, num_rows)
        if run_s > self._max_run_s:
            self._trust = max(self._trust * _CUT, _MIN_TRUST)
        else:
            self._trust = min(self._trust + _GIVE_BACK, 1.0)
        self.rows = self._choose()

    def _choose(self) -> int:
        cost = self._cost_model.cost
        may_grow = self._trust == 1.0 or cost is not None
        rows = self._largest_tried * (_GROWTH if may_grow else 1)
        if cost is not None and cost.per_row_s > 0.0:
            fitting = (_SAFETY * self._max_run_s - cost.fixed_s) / cost.per_row_s
            rows = min(rows, max(int(fitting), self._least_useful(rows)))
        return min(max(int(rows * self._trust), self._least_useful(rows)), self._max_rows)

    def _least_useful(self, rows: int) -> int:
        """Fewer than this would save little time, since the fixed part stays, and cost throughput.

        A target that even such batches miss is missed by all.
        """
        cost = self._cost_model.cost
        if cost is None:
            return 1
        if not cost.per_row_s:
            return rows
        return max(min(rows, int(_FIXED_SHARE * cost.fixed_s / cost.per_row_s)), 1)
