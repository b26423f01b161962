"""Keeps a runner to work with: tells a failed step from a lost runner, and makes another one."""

import logging

import numpy as np

from aspira.contracts.errors import Unavailable
from aspira.llm.failures import as_serving_error
from aspira.llm.runner import Logits, MakeRunner, Runner, RunnerLost, StepBatch

_logger = logging.getLogger(__name__)

_MAX_FAILURES = 3
"""Steps that may fail one after the other before the runner counts as lost."""


class RunnerKeeper:
    """Makes the first runner when built. Later ones only for runners that had worked before.

    Libraries seldom say whether they can go on after an error, so it is tried: a runner that
    fails at the smallest step there is, after it failed at another one, is lost.
    """

    def __init__(self, make_runner: MakeRunner) -> None:
        self._make_runner = make_runner
        self.runner = make_runner()
        self.num_rebuilds = 0
        self._num_failures = 0
        self._has_worked = False
        self._is_closed = False

    def run(self, batch: StepBatch) -> Logits:
        """Make a step.

        Raises:
            RunnerLost: the runner is gone, can do nothing more, or fails step after step.
            ServingError: this step failed.
        """
        try:
            logits = self.runner.run(batch)
        except RunnerLost:
            raise
        except Exception as error:
            self._judge(error)
            raise as_serving_error(error) from error
        self._num_failures = 0
        self._has_worked = True
        return logits

    def rebuild(self) -> Runner:
        """Replace the runner.

        Raises:
            Unavailable: this one never worked, or another one could not be made, or does not work.
        """
        self.close()
        if not self._has_worked:
            raise Unavailable("The model's runner failed before its first step was complete")
        try:
            self.runner = self._make_runner()
            self._is_closed = False
            _make_smallest_step(self.runner)
        except Exception as error:
            raise Unavailable(f"The model's runner could not be made again: {error}") from error
        self.num_rebuilds += 1
        self._num_failures = 0
        self._has_worked = False
        return self.runner

    def close(self) -> None:
        """Free the runner, in whatever state it is, once: others may use what it shares."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.runner.close()
        except Exception:
            _logger.exception("A runner could not be closed")

    def _judge(self, error: Exception) -> None:
        """After a step failed: can this runner make others?"""
        self._num_failures += 1
        if self._num_failures >= _MAX_FAILURES:
            raise RunnerLost(f"{_MAX_FAILURES} steps failed in a row: {error}") from error
        try:
            _make_smallest_step(self.runner)
        except Exception as second:
            _logger.exception("A runner fails at everything")
            raise RunnerLost(f"a step failed ({error}), then the smallest one did") from second


def _make_smallest_step(runner: Runner) -> None:
    """One token, in a block whose content is put back: whoever holds it must not notice."""
    block_ids = [0]
    content = runner.export_blocks(block_ids)
    runner.run(
        StepBatch(
            tokens=np.zeros(1, np.int64),
            positions=np.zeros(1, np.int64),
            past_lens=np.zeros(1, np.int32),
            sequence_begins=np.array([0, 1], np.int32),
            block_ids=np.array(block_ids, np.int32),
            block_begins=np.array([0, 1], np.int32),
            sampled_rows=np.zeros(1, np.int32),
        )
    )
    runner.import_blocks(block_ids, payload=content)
