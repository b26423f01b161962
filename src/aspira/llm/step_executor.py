"""Carries a plan out: the runner's logits, and a token drawn from each row that has one."""

from collections.abc import Sequence

from aspira.llm.batch import assemble_batch
from aspira.llm.failures import as_serving_error
from aspira.llm.runner import MakeRunner
from aspira.llm.runner_keeper import RunnerKeeper
from aspira.llm.sampler import Drawn, Sampler, SamplingRow
from aspira.llm.step_plan import StepPlan


class StepExecutor:
    """The one place that touches tensors."""

    def __init__(self, make_runner: MakeRunner) -> None:
        self.keeper = RunnerKeeper(make_runner)
        self._sampler = Sampler()

    def execute(self, plan: StepPlan, *, rows: Sequence[SamplingRow]) -> list[Drawn]:
        """Make the step; `rows` are those of the plan that are sampled, in its order.

        Raises:
            RunnerLost: only another runner can go on.
            ServingError: the step failed.
        """
        logits = self.keeper.run(assemble_batch(plan))
        try:
            return self._sampler.sample(logits, rows=rows)
        except Exception as error:
            raise as_serving_error(error) from error
