"""Metrics of language models, with vLLM's names under our prefix, so that its dashboards fit.

Intervals are of one clock, the server's. TTFT is from the arrival at the front end. A hit rate is a
ratio of rates, `prefix_cache_hits_total` by `prefix_cache_queries_total`, both in tokens. What
models do to warm up is not counted.
"""

from threading import Lock

from aspira.contracts.events import (
    EngineEnded,
    EngineStarted,
    GenerationEnded,
    GenerationEvent,
    GenerationStepEnded,
)
from aspira.contracts.identity import ServableId
from aspira.observability.engine_totals import EngineTotals
from aspira.observability.metrics import Counter, Family, Histogram, Labels

_LABELS = ("model_name", "version")
_TTFT_BOUNDS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_GAP_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_REQUEST_BOUNDS_S = (
    0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_TOKEN_BOUNDS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))
_STEP_BOUNDS = tuple(float(2**e) for e in (0, *range(3, 15)))
_CHOICE_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0)
# vLLM's words for what is neither `stop` nor `length`.
_ABORTED = "cancelled"
_REASONS = ("stop", "length")


class GenerationMetrics:
    """Counts on the threads of engines."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._first_token_s = _histogram("time_to_first_token_seconds", bounds=_TTFT_BOUNDS_S)
        self._gap_s = _histogram("inter_token_latency_seconds", bounds=_GAP_BOUNDS_S)
        self._total_s = _histogram("e2e_request_latency_seconds", bounds=_REQUEST_BOUNDS_S)
        self._queue_s = _histogram("request_queue_time_seconds", bounds=_REQUEST_BOUNDS_S)
        self._prefill_s = _histogram("request_prefill_time_seconds", bounds=_REQUEST_BOUNDS_S)
        self._decode_s = _histogram("request_decode_time_seconds", bounds=_REQUEST_BOUNDS_S)
        self._prompt = _histogram("request_prompt_tokens", bounds=_TOKEN_BOUNDS)
        self._generated = _histogram("request_generation_tokens", bounds=_TOKEN_BOUNDS)
        self._max_tokens = _histogram("request_params_max_tokens", bounds=_TOKEN_BOUNDS)
        self._choices = _histogram("request_params_n", bounds=_CHOICE_BOUNDS)
        self._step_tokens = _histogram("iteration_tokens_total", bounds=_STEP_BOUNDS)
        self._ended = Counter(
            "aspira:request_success_total", label_names=(*_LABELS, "finished_reason")
        )
        self._engines = EngineTotals(_LABELS)

    @property
    def families(self) -> tuple[Family, ...]:
        """Those that have something to tell: a server without language models has none."""
        families: tuple[Family, ...] = (
            self._first_token_s,
            self._gap_s,
            self._total_s,
            self._queue_s,
            self._prefill_s,
            self._decode_s,
            self._prompt,
            self._generated,
            self._max_tokens,
            self._choices,
            self._step_tokens,
            self._ended,
        )
        families += self._engines.families()
        return tuple(family for family in families if family.snapshot())

    def drop(self, name: str, *, version: int | None = None) -> None:
        """Forget a model, or one version of it."""
        start = (name,) if version is None else (name, str(version))
        self._engines.drop(start)
        with self._lock:
            for family in self.families:
                family.remove_where(lambda labels: labels[: len(start)] == start)

    def count(self, event: GenerationEvent) -> None:
        """Count a step, a request that ended, or an engine that comes or goes."""
        labels = _labels_of(event.servable_id)
        match event:
            case GenerationStepEnded():
                with self._lock:
                    self._count_step(event, labels=labels)
            case GenerationEnded():
                with self._lock:
                    self._count_end(event, labels=labels)
            case EngineStarted(read=read):
                self._engines.add(labels, read=read)
            case EngineEnded(read=read):
                self._engines.retire(labels, read=read)

    def _count_step(self, event: GenerationStepEnded, *, labels: Labels) -> None:
        self._step_tokens.observe(labels, value=event.num_tokens)
        for waited_s in event.first_tokens_s:
            self._first_token_s.observe(labels, value=waited_s)
        for gap_s in event.gaps_s:
            self._gap_s.observe(labels, value=gap_s)

    def _count_end(self, event: GenerationEnded, *, labels: Labels) -> None:
        self._ended.increment((*labels, _reason_of(event.outcome)))
        for histogram, value in (
            (self._total_s, event.total_s),
            (self._queue_s, event.queue_s),
            (self._prefill_s, event.prefill_s),
            (self._decode_s, event.decode_s),
            (self._prompt, event.prompt_tokens),
            (self._generated, event.completion_tokens),
            (self._max_tokens, event.max_tokens),
            (self._choices, event.num_choices),
        ):
            if value is not None:
                histogram.observe(labels, value=value)


def _histogram(name: str, *, bounds: tuple[float, ...]) -> Histogram:
    return Histogram(f"aspira:{name}", label_names=_LABELS, bounds=bounds)


def _labels_of(servable_id: ServableId) -> Labels:
    return (servable_id.name, str(servable_id.version))


def _reason_of(outcome: str) -> str:
    if outcome in _REASONS:
        return outcome
    return "abort" if outcome == _ABORTED else "error"
