"""One step after the other: plan, execute, commit, send. All of it on one thread.

Whatever happens, each generation that was accepted ends once: with its last choice, or with an
error, and its blocks are free at that moment.
"""

import logging
from collections.abc import Callable, Sequence

from aspira.contracts.clock import Clock
from aspira.contracts.errors import (
    Cancelled,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ServingError,
    Unavailable,
)
from aspira.contracts.generation import Delta, FinishReason
from aspira.llm.generation import Choice, ChoicesBySequence, Generation
from aspira.llm.queue_gate import QueueGate
from aspira.llm.recorder import Recorder
from aspira.llm.runner import RunnerLost
from aspira.llm.sampler import Drawn, DrawnToken, RowFault
from aspira.llm.scheduler import Scheduler
from aspira.llm.step_executor import StepExecutor
from aspira.llm.step_plan import StepPlan
from aspira.llm.streams import StreamEnd

_logger = logging.getLogger(__name__)


class StepLoop:
    """The generations that go on, and the steps that they are made of."""

    def __init__(
        self,
        executor: StepExecutor,
        *,
        scheduler: Scheduler,
        gate: QueueGate,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self._gate = gate
        self.recorder = recorder
        self._clock = clock
        self._generations: dict[Generation, None] = {}
        self._choices = ChoicesBySequence()
        self._is_runner_lost = False

    @property
    def is_runner_lost(self) -> bool:
        """Whether the next step is to make another runner. From any thread."""
        return self._is_runner_lost

    @property
    def has_work(self) -> bool:
        return bool(self._generations) or self._is_runner_lost

    def accept(self, generation: Generation) -> None:
        """Take a request in, which the gate has counted in."""
        self.recorder.note_accepted()
        self._generations[generation] = None
        for choice in generation.choices:
            self._choices[choice.sequence] = choice
            self.scheduler.add(choice.sequence)

    def abort(self, generation: Generation) -> None:
        """Its consumer went away. Does nothing if it has ended."""
        self._end(generation, because=Cancelled("The client went away"))

    def end_all(self, error: ServingError) -> None:
        """End every generation with an error."""
        for generation in tuple(self._generations):
            self._end(generation, because=error)

    def update_statistics(self) -> None:
        """Renew the recorder's."""
        self.recorder.update(self.scheduler, keeper=self.executor.keeper)

    def step(self, *, on_planned: Callable[[], None] | None = None) -> None:
        """Make one step, if there is anything to do: another runner, if the last one was lost.
        `on_planned` is called before a step computes.

        Raises:
            Unavailable: there is no runner any more; whoever is left has to be ended.
        """
        if self._is_runner_lost:
            self._replace_runner()
            return
        began = self._clock.now()
        self._end_those_late(began)
        plan = self.scheduler.plan()
        if not plan.rows:
            if self._generations:
                raise Internal("Requests are waiting and none of them can run")
            return
        self._note_started(plan, now=began)
        if on_planned is not None:
            on_planned()
        try:
            self._carry_out(plan)
        except RunnerLost as error:
            self._lose_runner(plan, error=error)
        self._note_step(plan, duration_s=self._clock.now() - began)

    def _carry_out(self, plan: StepPlan) -> None:
        sampled = [self._choices[row.sequence] for row in plan.rows if row.is_sampled]
        try:
            drawn = self.executor.execute(plan, rows=[choice.sampling_row() for choice in sampled])
        except RunnerLost:
            raise
        except ServingError as error:
            self._find_fault(plan, error=error)
        else:
            self._commit(plan, sampled=sampled, drawn=drawn)

    def _find_fault(self, plan: StepPlan, *, error: ServingError) -> None:
        """Carry a plan that failed out again, one sequence at a time; who fails alone has ended.

        Once more does no harm: a step writes to no block that others know.
        """
        if len(plan.rows) == 1:
            self._end_those_in(plan, error=error)
            return
        for row in plan.rows:
            if not row.sequence.is_ended:
                self._carry_out(StepPlan((row,)))

    def _commit(self, plan: StepPlan, *, sampled: Sequence[Choice], drawn: list[Drawn]) -> None:
        now = self._clock.now()
        pairs = list(zip(sampled, drawn, strict=True))
        tokens = {c.sequence: d.token_id for c, d in pairs if isinstance(d, DrawnToken)}
        self.scheduler.commit(plan, drawn=tokens)
        for choice, token in pairs:
            if isinstance(token, RowFault):
                self._end_faulty(choice, fault=token)
            elif not choice.generation.is_ended:
                self._push(choice, token=token, now=now)

    def _push(self, choice: Choice, *, token: DrawnToken, now: float) -> None:
        self._note_token(choice, now=now)
        try:
            delta = choice.push(token)
        except ServingError as error:
            self._end(choice.generation, because=error)
            return
        if delta is None:
            return
        if delta.finish_reason is None:
            choice.generation.send(delta)
        else:
            self._finish(choice, last=delta, reason=delta.finish_reason)

    def _finish(self, choice: Choice, *, last: Delta, reason: FinishReason) -> None:
        """A choice is complete, and with its last one the generation."""
        generation = choice.generation
        self.scheduler.remove(choice.sequence)
        generation.num_open_choices -= 1
        if generation.num_open_choices:
            generation.send(last)
        else:
            generation.send(last._replace(usage=generation.usage))
            self._end(generation, because=reason)

    def _end_faulty(self, choice: Choice, *, fault: RowFault) -> None:
        if fault is RowFault.NOTHING_ALLOWED:
            self._end(choice.generation, because=InvalidArgument(fault.value))
            return
        # What was computed on the way is not to be trusted either, nor what it began with.
        self.scheduler.remove_corrupt(choice.sequence)
        self.recorder.note_corrupted()
        self._end(choice.generation, because=Internal(fault.value))

    def _end(self, generation: Generation, *, because: ServingError | FinishReason) -> None:
        """The one way out. A second end does nothing."""
        if generation.is_ended:
            return
        generation.is_ended = True
        del self._generations[generation]
        for choice in generation.choices:
            self.scheduler.remove(choice.sequence)
            del self._choices[choice.sequence]
        if generation.started_at is None:
            self._gate.leave(generation.num_queued_tokens)
        if isinstance(because, ServingError):
            outcome = because.code.name.lower()
            generation.send(StreamEnd(because))
        else:
            outcome = because.value
            generation.send(StreamEnd())
        self.recorder.note_ended(generation, outcome=outcome, now=self._clock.now())
        if not self._generations:
            self.scheduler.check_idle()

    def _end_those_late(self, now: float) -> None:
        for generation in tuple(self._generations):
            if generation.is_abandoned:
                self.abort(generation)
            elif generation.has_time_limits:
                missed = generation.missed_limit(now)
                if missed is not None:
                    self._end(generation, because=DeadlineExceeded(missed))

    def _end_those_in(self, plan: StepPlan, *, error: ServingError) -> None:
        for row in plan.rows:
            if row.sequence in self._choices:
                self._end(self._choices[row.sequence].generation, because=error)

    def _lose_runner(self, plan: StepPlan, *, error: RunnerLost) -> None:
        """Those in the step get a retryable error, now: another runner may take minutes to make."""
        _logger.error("The model's runner was lost; making another one. %s", error.message)
        lost = Unavailable(f"The model's runner was lost; retry the request. {error.message}")
        self._end_those_in(plan, error=lost)
        self._is_runner_lost = True

    def _replace_runner(self) -> None:
        """Those that wait go on with a new runner."""
        runner = self.executor.keeper.rebuild()
        self.scheduler.restart(runner.num_blocks)
        self._is_runner_lost = False

    def _note_token(self, choice: Choice, *, now: float) -> None:
        generation = choice.generation
        if generation.first_token_at is None:
            generation.first_token_at = now
            self.recorder.note_first_token(now - generation.request.arrival)
        before = choice.last_token_at
        self.recorder.note_token(None if before is None else now - before)
        generation.last_token_at = choice.last_token_at = now

    def _note_started(self, plan: StepPlan, *, now: float) -> None:
        for row in plan.rows:
            generation = self._choices[row.sequence].generation
            if generation.started_at is None:
                generation.started_at = now
                self._gate.leave(generation.num_queued_tokens)
                self.recorder.note_started(generation)

    def _note_step(self, plan: StepPlan, *, duration_s: float) -> None:
        self._gate.note_step(plan.num_tokens, duration_s=duration_s)
        self.recorder.note_step(
            num_tokens=plan.num_tokens, num_sequences=len(plan.rows), duration_s=duration_s
        )
