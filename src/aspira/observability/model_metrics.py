"""Metrics of models and versions: states, failures, warm-up, whether or not anybody asks them."""

from collections.abc import Mapping
from types import MappingProxyType

from aspira.contracts.errors import Code
from aspira.contracts.events import (
    LifecycleEvent,
    LoadAttemptFailed,
    SourceProblem,
    VersionStateChanged,
    WarmupFinished,
    WarmupRunEnded,
)
from aspira.contracts.identity import ServableId
from aspira.observability.metrics import (
    MAX_NUM_SERIES,
    Counter,
    Family,
    Gauge,
    Histogram,
    exponential_bounds,
)

LATENCY_BOUNDS_US = exponential_bounds(10.0, growth=1.8, num_bounds=33)
MICROSECONDS_PER_SECOND = 1e6
GRPC_API_LABELS: Mapping[str, str] = MappingProxyType(
    {"predict": "Predict", "classify": "Classify", "regress": "Regress"}
)
# The original's name for a session of whatever kind; its binary has no other.
RUNTIME = "TF1"

_FINAL_STATES = frozenset({"gone", "failed"})


class ModelMetrics:
    """What happens to models whether or not anybody asks them anything.

    `names` are those of every model that an event has told of, until it is dropped.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._warmup_latency_us = Histogram(
            "/tensorflow/serving/model_warmup_latency",
            label_names=("model_path", "status"),
            bounds=LATENCY_BOUNDS_US,
        )
        self._warmup_records = Counter(
            "/tensorflow/serving/model_warmup_records_read", label_names=("model_path", "status")
        )
        self._version_state = Gauge(
            "/aspira/model_version_state", label_names=("model_name", "version", "state")
        )
        self._load_failures = Counter(
            "/aspira/load_failures", label_names=("model_name", "version", "code")
        )
        self._source_problems = Gauge("/aspira/source_problems", label_names=("model_name",))
        self.runtime_latency_us = make_runtime_latency(MAX_NUM_SERIES)
        # Of each life of a version: one may be loading while an older one serves.
        self._states: dict[ServableId, list[str]] = {}

    @property
    def families(self) -> tuple[Family, ...]:
        """What the page shows of it; `runtime_latency_us` is shown with that of requests."""
        return (
            self._warmup_latency_us,
            self._warmup_records,
            self._version_state,
            self._load_failures,
            self._source_problems,
        )

    def note(self, event: LifecycleEvent) -> None:
        """Something happened."""
        match event:
            case VersionStateChanged():
                self.names.add(event.servable_id.name)
                self._note_state(event)
            case LoadAttemptFailed(servable_id=failed, error=error):
                labels = (failed.name, str(failed.version), error.code.name)
                self._load_failures.increment(labels)
            case SourceProblem():
                self.names.add(event.model_name)
                self._source_problems.assign((event.model_name,), value=int(bool(event.message)))
            case WarmupFinished():
                self._note_warmup(event)
            case WarmupRunEnded(model_name=name, api=api, duration_s=duration_s):
                if api in GRPC_API_LABELS:
                    self.runtime_latency_us.observe(
                        (name, GRPC_API_LABELS[api], RUNTIME),
                        value=duration_s * MICROSECONDS_PER_SECOND,
                    )
            case _:
                pass  # Told elsewhere.

    def is_alive(self, servable_id: ServableId) -> bool:
        """Whether some life of a version has not ended."""
        return any(state not in _FINAL_STATES for state in self._states.get(servable_id, []))

    def drop_version(self, servable_id: ServableId, *, path: str) -> None:
        """Forget what is told of a version that has ended."""
        for warmup in (self._warmup_latency_us, self._warmup_records):
            warmup.remove_where(lambda labels: labels[0] == path)
        alive = [s for s in self._states.pop(servable_id, []) if s not in _FINAL_STATES]
        if alive:
            self._states[servable_id] = alive
        self._tell_states(servable_id)
        if not alive:
            failed = (servable_id.name, str(servable_id.version))
            self._load_failures.remove_where(lambda labels: labels[:2] == failed)

    def drop_model(self, name: str) -> None:
        """Forget a model that is configured no longer."""
        self.names.discard(name)
        self._states = {known: s for known, s in self._states.items() if known.name != name}
        by_name = (self._version_state, self._load_failures, self._source_problems)
        for family in (*by_name, self.runtime_latency_us):
            family.remove_where(lambda labels: labels[0] == name)

    def _note_state(self, event: VersionStateChanged) -> None:
        states = self._states.setdefault(event.servable_id, [])
        if event.previous_state in states:
            states.remove(event.previous_state)
        if event.previous_state is None:
            # A new life: how earlier ones ended is told no longer.
            states[:] = [state for state in states if state not in _FINAL_STATES]
        states.append(event.state)
        self._tell_states(event.servable_id)

    def _tell_states(self, servable_id: ServableId) -> None:
        version = (servable_id.name, str(servable_id.version))
        states = self._states.get(servable_id, [])
        self._version_state.remove_where(
            lambda labels: labels[:2] == version and labels[2] not in states
        )
        for state in states:
            self._version_state.assign((*version, state), value=1)

    def _note_warmup(self, event: WarmupFinished) -> None:
        labels = (event.path, Code.OK.name)
        self._warmup_records.increment(labels, by=event.num_records)
        self._warmup_latency_us.observe(labels, value=event.duration_s * MICROSECONDS_PER_SECOND)


def make_runtime_latency(max_num_series: int) -> Histogram:
    """TensorFlow Serving's own family about runs."""
    return Histogram(
        "/tensorflow/serving/runtime_latency",
        label_names=("model_name", "API", "runtime"),
        bounds=LATENCY_BOUNDS_US,
        max_num_series=max_num_series,
    )
