"""What the past runs of one version tell of the next: what they cost, how many rows to take."""

from typing import NamedTuple

from aspira.batching.admission import DrainRate
from aspira.batching.batch_limit import BatchLimit
from aspira.batching.cost_model import CostModel, RunCost
from aspira.batching.options import BatchingOptions, BatchingParameters

_LEARN_EVERY = 8


class RunEnd(NamedTuple):
    """When a batch ended, and how long its run took, padding included.

    Of a batch of single runs both sizes are their number.
    """

    num_rows: int
    padded_rows: int
    run_s: float
    ended_s: float


class RunHistory:
    """One writer at a time; what it holds may be read on any thread."""

    def __init__(self, options: BatchingOptions, *, parameters: BatchingParameters | None) -> None:
        self._is_merging = parameters is not None
        self._num_runs = 0
        self.cost_model = CostModel()
        self.limit = BatchLimit(
            self.cost_model,
            max_rows=parameters.execution_size if parameters is not None else 1,
            target_s=options.latency_target_s if options.is_learned else 0.0,
        )
        self.drain_rate = DrainRate()

    @property
    def cost(self) -> RunCost | None:
        """None before the first run."""
        return self.cost_model.cost

    def observe(self, end: RunEnd, *, is_any_waiting: bool) -> None:
        """Learn from a batch that succeeded; whether there are requests that wait."""
        num_rows, padded_rows, run_s, ended_s = end
        self.drain_rate.observe(num_rows, now=ended_s, is_any_waiting=is_any_waiting)
        self._num_runs += 1
        # Single runs are many and alike: one in eight tells enough.
        if self._is_merging or self._num_runs % _LEARN_EVERY == 1:
            self.cost_model.observe(padded_rows, run_s=run_s)
            self.limit.observe(padded_rows, run_s=run_s)
