"""Learns how long a run takes as a function of its rows: a fixed part, and a part for each row.

Fixed and per-row cost come from a least-squares line through past runs, each of which counts a
little less with every run that follows it, so that the line follows a machine that gets busy.
"""

from dataclasses import dataclass

_FORGETTING = 0.98
# A run that lasted this many times what was expected tells of the machine, not of the model.
_MAX_SURPRISE = 4.0
_MIN_SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class RunCost:
    """Seconds of a run: `fixed_s + per_row_s * rows`."""

    fixed_s: float
    per_row_s: float

    def run_s(self, num_rows: float) -> float:
        return self.fixed_s + self.per_row_s * num_rows


class CostModel:
    """One writer at a time; both figures may be read on any thread.

    `cost` is None before the first run.
    """

    def __init__(self) -> None:
        self.cost: RunCost | None = None
        # How fast one thread gets through rows at recent batch sizes; 0 before the first run.
        self.seconds_per_row = 0.0
        self._weight = 0.0
        self._sum_rows = 0.0
        self._sum_s = 0.0
        self._sum_rows_rows = 0.0
        self._sum_rows_s = 0.0

    def observe(self, num_rows: int, *, run_s: float) -> None:
        """Learn from one run."""
        if self.cost is not None:
            run_s = min(run_s, _MAX_SURPRISE * self.cost.run_s(num_rows) + 1e-9)
        self._weight = self._weight * _FORGETTING + 1.0
        self._sum_rows = self._sum_rows * _FORGETTING + num_rows
        self._sum_s = self._sum_s * _FORGETTING + run_s
        self._sum_rows_rows = self._sum_rows_rows * _FORGETTING + num_rows * num_rows
        self._sum_rows_s = self._sum_rows_s * _FORGETTING + num_rows * run_s
        self.cost = self._fit()
        self.seconds_per_row = self._sum_s / self._sum_rows if self._sum_rows else 0.0

    def _fit(self) -> RunCost:
        mean_rows, mean_s = self._sum_rows / self._weight, self._sum_s / self._weight
        variance = self._sum_rows_rows / self._weight - mean_rows * mean_rows
        if variance <= _MIN_SPREAD * mean_rows * mean_rows:
            # Runs of one size say nothing about a slope: keep the last one that was seen.
            slope = self.cost.per_row_s if self.cost is not None else 0.0
        else:
            slope = (self._sum_rows_s / self._weight - mean_rows * mean_s) / variance
        slope = min(max(slope, 0.0), mean_s / mean_rows if mean_rows else 0.0)
        return RunCost(max(mean_s - slope * mean_rows, 0.0), slope)
