"""Makes one version of a language model ready: reads it, starts its engine, warms it up."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from aspira.contracts.clock import Clock
from aspira.contracts.events import EngineEnded, EngineStarted, EventBus, GenerationEvent
from aspira.contracts.generation import GenerationStatistics
from aspira.contracts.identity import ServableId
from aspira.llm.assembly import start_engine
from aspira.llm.cache_budget import CacheBudget
from aspira.llm.model_source import LanguageModelSource, Queued, load_predictor
from aspira.llm.runner import MakeRunner, Runner
from aspira.llm.servable import LanguageModel
from aspira.llm.warm_up import warm_up

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LanguageModelContext:
    """What the language models of one server share."""

    clock: Clock
    events: EventBus
    budget: CacheBudget


class LanguageModelLoader:
    """See `Loader`."""

    def __init__(
        self,
        source: LanguageModelSource,
        *,
        servable_id: ServableId,
        context: LanguageModelContext,
        queued: Queued,
    ) -> None:
        self._source = source
        self._queued = queued
        self._servable_id = servable_id
        self._context = context
        self._is_hanging = False

    def load(self) -> LanguageModel:
        budget, model_name = self._context.budget, self._servable_id.name
        wanted_mib = self._source.options.decoder.cache_mib
        cache_mib = budget.take(wanted_mib, model_name=model_name)
        try:
            model = self._load(cache_mib)
        except BaseException:
            # A step that hangs keeps its memory; others must not count on it.
            if not self._is_hanging:
                budget.give_back(cache_mib, model_name=model_name)
            raise
        # Told now, while there is time, and not by the swap that fails.
        problem = budget.find_swap_problem(cache_mib, model_name=model_name)
        if problem:
            _logger.warning("Servable %s is loaded, but %s", self._servable_id, problem)
        return model

    def _load(self, cache_mib: int) -> LanguageModel:
        def make_runner() -> Runner:
            return self._source.make_runner(cache_mib=cache_mib)

        runner = make_runner()
        try:
            max_tokens = min(runner.max_context, runner.num_blocks * runner.block_size)
            text = self._source.make_text(max_tokens=max_tokens)
        except BaseException:
            runner.close()
            raise
        publication = _Publication(self._context.events)
        engine = start_engine(
            _first_this(runner, then=make_runner),
            servable_id=self._servable_id,
            vocabulary=text.vocabulary,
            options=self._source.options.engine,
            clock=self._context.clock,
            publish=publication.publish,
        )
        try:
            num_step_tokens = self._source.options.engine.max_step_tokens
            now = self._context.clock.now()
            asyncio.run(warm_up(engine, text=text, num_step_tokens=num_step_tokens, now=now))
            predictor = load_predictor(self._source, queued=self._queued)
        except BaseException:
            self._is_hanging = not engine.close(drain_s=0.0)
            raise
        publication.is_on = True
        model = LanguageModel(
            engine,
            text=text,
            times=self._source.options.limits.as_time_limits(),
            on_unloaded=lambda is_free: self._end(read, cache_mib=cache_mib, is_free=is_free),
            predictor=predictor,
        )

        def read() -> GenerationStatistics:
            return model.statistics

        publication.publish(EngineStarted(self._servable_id, read))
        return model

    def _end(
        self, read: Callable[[], GenerationStatistics], *, cache_mib: int, is_free: bool
    ) -> None:
        self._context.events.publish_generation(EngineEnded(self._servable_id, read))
        if is_free:
            self._context.budget.give_back(cache_mib, model_name=self._servable_id.name)


class _Publication:
    """Keeps quiet while the model warms up: that is no traffic."""

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self.is_on = False

    def publish(self, event: GenerationEvent) -> None:
        if self.is_on:
            self._events.publish_generation(event)


def _first_this(runner: Runner, *, then: MakeRunner) -> MakeRunner:
    """Hands out a runner that is made already, and makes others later."""
    ready = [runner]
    return lambda: ready.pop() if ready else then()
