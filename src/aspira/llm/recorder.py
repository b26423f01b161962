"""Counts what the engine does, and tells it as events."""

from collections import Counter
from collections.abc import Callable

from aspira.contracts.events import GenerationEnded, GenerationEvent, GenerationStepEnded
from aspira.contracts.generation import GenerationStatistics
from aspira.contracts.identity import ServableId
from aspira.llm.generation import Generation
from aspira.llm.runner_keeper import RunnerKeeper
from aspira.llm.scheduler import Scheduler

Publish = Callable[[GenerationEvent], None]


class Recorder:
    """On the engine's thread. `statistics` is a value that any thread may read at any time."""

    def __init__(self, servable_id: ServableId, *, publish: Publish) -> None:
        self.statistics = GenerationStatistics()
        self._servable_id = servable_id
        self._publish = publish
        self._num_open = 0
        self._num_running = 0
        self._num_accepted = 0
        self._num_corrupted = 0
        self._num_steps = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._ended: Counter[str] = Counter()
        self._first_tokens_s: list[float] = []
        self._gaps_s: list[float] = []

    def note_accepted(self) -> None:
        self._num_accepted += 1
        self._num_open += 1

    def note_started(self, generation: Generation) -> None:
        self._num_running += 1
        self._prompt_tokens += len(generation.request.prompt)

    def note_corrupted(self) -> None:
        self._num_corrupted += 1

    def note_first_token(self, since_arrival_s: float) -> None:
        self._first_tokens_s.append(since_arrival_s)

    def note_token(self, gap_s: float | None) -> None:
        """A choice got a token, so long after the one before, if it had one."""
        self._generation_tokens += 1
        if gap_s is not None:
            self._gaps_s.append(gap_s)

    def note_step(self, *, num_tokens: int, num_sequences: int, duration_s: float) -> None:
        self._num_steps += 1
        event = GenerationStepEnded(
            self._servable_id,
            num_tokens,
            num_sequences,
            duration_s,
            tuple(self._first_tokens_s),
            tuple(self._gaps_s),
        )
        self._first_tokens_s.clear()
        self._gaps_s.clear()
        self._publish(event)

    def note_ended(self, generation: Generation, *, outcome: str, now: float) -> None:
        self._ended[outcome] += 1
        self._num_open -= 1
        self._num_running -= generation.started_at is not None
        usage, request = generation.usage, generation.request
        self._publish(
            GenerationEnded(
                self._servable_id,
                outcome,
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.cached_tokens,
                request.num_choices,
                generation.max_tokens,
                queue_s=_elapsed(request.arrival, until=generation.started_at),
                prefill_s=_elapsed(generation.started_at, until=generation.first_token_at),
                decode_s=_elapsed(generation.first_token_at, until=generation.last_token_at),
                total_s=now - request.arrival,
                request=request,
            )
        )

    def update(self, scheduler: Scheduler, *, keeper: RunnerKeeper) -> None:
        """Renew `statistics`."""
        blocks = scheduler.blocks
        self.statistics = GenerationStatistics(
            num_requests_running=self._num_running,
            num_requests_waiting=self._num_open - self._num_running,
            kv_cache_usage=blocks.num_held / blocks.num_blocks,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens,
            prefix_cache_queries=scheduler.num_queried_tokens,
            prefix_cache_hits=scheduler.num_hit_tokens,
            num_preemptions=scheduler.num_preemptions,
            corrupted_requests=self._num_corrupted,
            num_steps=self._num_steps,
            num_runner_rebuilds=keeper.num_rebuilds,
            num_late_compilations=keeper.runner.num_late_compilations,
            requests_accepted=self._num_accepted,
            requests_ended=dict(self._ended),
        )


def _elapsed(begin: float | None, *, until: float | None) -> float | None:
    return None if begin is None or until is None else until - begin
