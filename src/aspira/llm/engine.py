"""The token engine of one model: a thread that makes steps, and streams for whoever asks.

Its thread owns the runner, the cache and every sequence. Others post commands, which it runs
between two steps, and read streams on their event loop. No stream outlives the engine: however the
thread ends, or hangs, each one ends with an error.
"""

import asyncio
import logging
import threading
from copy import copy
from dataclasses import replace
from functools import partial

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Internal, ServingError, Unavailable
from aspira.contracts.generation import GenerateRequest, GenerationStatistics
from aspira.llm.constraints import MakeConstraint
from aspira.llm.generation import Generation
from aspira.llm.heartbeat import Heartbeat
from aspira.llm.inbox import Inbox, run_all
from aspira.llm.intake import Intake
from aspira.llm.queue_gate import QueueGate
from aspira.llm.step_loop import StepLoop
from aspira.llm.stream_hub import HubOutlet, StreamHub
from aspira.llm.streams import TokenStream

_logger = logging.getLogger(__name__)

_LAST_STEP_S = 10.0
"""How much longer than its drain an engine may take to end its last step."""

_LOOKS_PER_LIMIT = 4

_RENEWAL_LIMIT_S = 600.0
"""Making another runner is loading the model once more, which may take minutes."""


class Engine:
    """Started by `start`, ended by `close`. `submit` is for event loops."""

    def __init__(
        self,
        steps: StepLoop,
        *,
        intake: Intake,
        gate: QueueGate,
        stall_timeout_s: float,
        clock: Clock,
        name: str,
    ) -> None:
        self._steps = steps
        self._intake = intake
        self._gate = gate
        self._heartbeat = Heartbeat(clock, longest_s=stall_timeout_s)
        self._clock = clock
        self._inbox = Inbox()
        self._hubs: dict[asyncio.AbstractEventLoop, StreamHub] = {}
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._closing_error: ServingError | None = None
        self._drain_deadline: float | None = None
        self._death: ServingError | None = None

    @property
    def max_context(self) -> int:
        """The most tokens that prompt and output can have together."""
        return self._intake.max_context

    @property
    def vocab_size(self) -> int:
        """The length of a row of logits: no token id is above it."""
        return self._intake.vocab_size

    @property
    def statistics(self) -> GenerationStatistics:
        """The state after the last step, and the totals so far. From any thread."""
        return replace(
            self._steps.recorder.statistics, admission_rejections=self._gate.num_rejections
        )

    def find_problem(self) -> ServingError | None:
        """Why the model is not ready, if it is not. Costs nothing: it asks no engine."""
        if self._death is not None or self._closing_error is not None:
            return self._death or self._closing_error
        if self._heartbeat.is_stalled:
            return Unavailable(
                "The model hangs: there is work, and it has made no step for "
                f"{self._heartbeat.limit_s:.3g} s. Retry at another replica."
            )
        if self._steps.is_runner_lost:
            return Unavailable(
                "The model's runner was lost, and another one is being made; retry the request"
            )
        return None

    @property
    def is_lost(self) -> bool:
        """Whether it will make no step any more. Costs nothing."""
        return self._death is not None or self._heartbeat.is_stuck

    def start(self) -> None:
        self._thread.start()

    def submit(
        self, request: GenerateRequest, *, make_constraint: MakeConstraint | None = None
    ) -> TokenStream:
        """Queue a request; its stream must be read to its end, or closed.

        Raises:
            InvalidArgument: it could never be served.
            ResourceExhausted: the queue is full.
            Unavailable: the model is being unloaded, or its engine has failed.
        """
        problem = self.find_problem()
        if problem is not None:
            raise copy(problem)
        hub = self._hub()
        stream = TokenStream(lambda: self._abort(generation, outlet=outlet))
        outlet = HubOutlet(hub, stream)
        generation = self._intake.make_generation(
            request, outlet=outlet, make_constraint=make_constraint
        )
        self._gate.enter(generation.num_queued_tokens)
        try:
            self._inbox.post(partial(self._steps.accept, generation))
        except Unavailable:
            self._gate.leave(generation.num_queued_tokens)
            raise
        hub.add(stream)
        hub.watch(self._find_hang, every_s=self._heartbeat.limit_s / _LOOKS_PER_LIMIT)
        return stream

    def close(self, *, drain_s: float) -> bool:
        """Let what was accepted end, for so long, then end the rest. Blocks; frees the runner.

        False if a step does not end: its memory is not free, and will not be.
        """
        self._closing_error = Unavailable("The model is being unloaded; retry the request")
        self._inbox.try_post(partial(self._drain_until, self._clock.now() + drain_s))
        self._thread.join(drain_s + _LAST_STEP_S)
        is_left = self._thread.is_alive()
        if is_left:
            _logger.error("%s: a step does not end; it is left behind", self._thread.name)
            self._fail_streams(self._closing_error)
        return not is_left

    def _hub(self) -> StreamHub:
        loop = asyncio.get_running_loop()
        if loop not in self._hubs:
            # Replaced whole: the engine's thread may be going through it.
            hubs = {other: hub for other, hub in self._hubs.items() if not hub.is_gone}
            self._hubs = {**hubs, loop: StreamHub(loop)}
        return self._hubs[loop]

    def _abort(self, generation: Generation, *, outlet: HubOutlet) -> None:
        outlet.hub.discard(outlet.stream)
        self._inbox.try_post(partial(self._steps.abort, generation))

    def _find_hang(self) -> ServingError | None:
        return self.find_problem() if self._heartbeat.is_stalled else None

    def _drain_until(self, deadline: float) -> None:
        self._drain_deadline = deadline

    def _fail_streams(self, error: ServingError) -> None:
        for hub in self._hubs.values():
            hub.call(partial(hub.fail_all, error))

    def _work(self) -> None:
        error: ServingError = Unavailable("The model was unloaded; retry the request")
        try:
            while self._turn():
                pass
        except ServingError as death:
            _logger.exception("%s: the engine has ended", self._thread.name)
            error = self._death = Unavailable(f"The model's engine has failed: {death.message}")
        except BaseException:
            _logger.exception("%s: the engine has a defect and has ended", self._thread.name)
            error = self._death = Internal("The model's engine has failed; see the server's log")
        finally:
            self._end(error)

    def _turn(self) -> bool:
        """Commands, then a step; False when that was the last one."""
        is_draining = self._drain_deadline is not None
        run_all(self._inbox.take(wait=not self._steps.has_work and not is_draining))
        if self._is_drained():
            return False
        if self._steps.has_work:
            self._make_step()
        self._steps.update_statistics()
        if not self._steps.has_work:
            self._heartbeat.rest()
            self._wake()
        return True

    def _make_step(self) -> None:
        if self._steps.is_runner_lost:
            self._heartbeat.beat(limit_s=_RENEWAL_LIMIT_S)
            self._wake()
            self._steps.step()
            return
        self._heartbeat.beat()
        # What the step before made is brought to its readers while this one computes: woken
        # earlier, they would take the interpreter from this thread while it plans.
        self._steps.step(on_planned=self._wake)
        self._heartbeat.learn()

    def _is_drained(self) -> bool:
        deadline = self._drain_deadline
        return deadline is not None and (not self._steps.has_work or self._clock.now() >= deadline)

    def _wake(self) -> None:
        for hub in self._hubs.values():
            hub.wake()

    def _end(self, error: ServingError) -> None:
        """Nothing gets in any more, everybody is told."""
        self._heartbeat.rest()
        try:
            run_all(
                [
                    *self._inbox.close(),
                    partial(self._steps.end_all, error),
                    self._steps.update_statistics,
                    self._wake,
                ]
            )
        except Exception:
            _logger.exception("%s: not all requests ended in order", self._thread.name)
        # For streams that a defect has kept from being told.
        self._fail_streams(error)
        self._steps.executor.keeper.close()
