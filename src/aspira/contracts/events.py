"""What happened, as values: floors below observability publish, observability subscribes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from aspira.contracts.errors import Code, ServingError
from aspira.contracts.generation import GenerateRequest, GenerationStatistics
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import SignatureRuntime


@dataclass(frozen=True, slots=True)
class VersionStateChanged:
    """A version entered a state (`aspira.lifecycle.version_state` names them)."""

    servable_id: ServableId
    state: str
    error: ServingError | None = None
    previous_state: str | None = None
    """Of this life of it; None at its begin. Two lives may overlap: one replaces the other."""


@dataclass(frozen=True, slots=True)
class VersionRetired:
    """A version has ended, or failed, and nobody wants it any longer. `path` was its directory."""

    servable_id: ServableId
    path: str


@dataclass(frozen=True, slots=True)
class VersionPending:
    """A version was seen that is not loaded yet. Published when the reason changes."""

    servable_id: ServableId
    reason: str


@dataclass(frozen=True, slots=True)
class ConfigApplying:
    """A configuration of these models is being put in force."""

    model_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConfigApplied:
    """It is in force, and its new models are settled."""


@dataclass(frozen=True, slots=True)
class ModelRemoved:
    """A model is configured no longer."""

    model_name: str


@dataclass(frozen=True, slots=True)
class LoadAttemptFailed:
    """One try of loading failed; `retries_left` says whether there will be another."""

    servable_id: ServableId
    error: ServingError
    retries_left: int


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A model's directory could not be listed, or holds no version. Published when it changes."""

    model_name: str
    message: str


@dataclass(frozen=True, slots=True)
class WarmupFinished:
    """The warm-up records of a version were replayed."""

    path: str
    num_records: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class RecordingStarted:
    """Requests to a model, with all they hold, are kept from now on, to be handed out."""

    model_name: str
    num_records: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RecordingEnded:
    """No more are kept."""

    model_name: str
    num_records: int


@dataclass(frozen=True, slots=True)
class WarmupRunEnded:
    """A run of a warm-up record succeeded. `api` is as in `RequestEnded`."""

    model_name: str
    api: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class RuntimeChosen:
    """It was decided what serves a signature of the version directory `path`."""

    path: str
    signature_name: str
    choice: SignatureRuntime


@dataclass(frozen=True, slots=True)
class RuntimesReleased:
    """The version of the directory `path`, for which runtimes were chosen, was unloaded."""

    path: str


@dataclass(frozen=True, slots=True)
class AcceleratorProblem:
    """An accelerator of the version directory `path` did not do its part; answers are right."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class CompiledAfterReady:
    """A request of a published version had to wait for a compiler. It never should."""

    path: str
    signature_name: str


class RequestEnded(NamedTuple):
    """A request got its one answer. `version` is None where none was chosen.

    `entrypoint` is `grpc` or `rest`. `api` is `predict`, `classify` or `regress`, over gRPC also
    `multi_inference`. Over REST it is empty for all that is no inference: status, metadata, and
    what cannot be routed; gRPC's questions about models are not published.

    `run_s` is how long the model's run took, its wait in the queue included; None where there was
    none that succeeded. `num_examples` is how many examples a `multi_inference` was about.
    """

    model_name: str
    version: int | None
    api: str
    entrypoint: str
    code: Code
    duration_s: float
    run_s: float | None = None
    num_examples: int = 0


class BatchEnded(NamedTuple):
    """Requests that shared a run: the rows of each, and how long it waited in the queue."""

    servable_id: ServableId
    request_rows: tuple[int, ...]
    waits_s: tuple[float, ...]
    num_inputs: int
    num_rows: int
    padded_rows: int
    run_s: float


class GenerationStepEnded(NamedTuple):
    """A model's token engine made one step. Times are seconds of the server's clock."""

    servable_id: ServableId
    num_tokens: int
    num_sequences: int
    duration_s: float
    first_tokens_s: tuple[float, ...]
    """From arrival to first token, of each request that got its first one."""

    gaps_s: tuple[float, ...]
    """From the token before, of each choice that got a further one."""


class GenerationEnded(NamedTuple):
    """A request to a token engine ended. What did not come to pass is None."""

    servable_id: ServableId
    outcome: str
    """`stop`, `length`, or the name of an error's code."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    num_choices: int
    max_tokens: int
    queue_s: float | None
    """From arrival to the first step that it took part in."""

    prefill_s: float | None
    """From there to the first token."""

    decode_s: float | None
    """From there to the last token."""

    total_s: float
    request: GenerateRequest


class EngineStarted(NamedTuple):
    """A version of a language model is ready. `read` tells its engine's state, on any thread."""

    servable_id: ServableId
    read: Callable[[], GenerationStatistics]


class EngineEnded(NamedTuple):
    """It was unloaded, after its last stream. `read` is that of its start, and tells the totals."""

    servable_id: ServableId
    read: Callable[[], GenerationStatistics]


GenerationEvent = GenerationStepEnded | GenerationEnded | EngineStarted | EngineEnded
LifecycleEvent = (
    VersionStateChanged
    | VersionRetired
    | VersionPending
    | ConfigApplying
    | ConfigApplied
    | ModelRemoved
    | LoadAttemptFailed
    | SourceProblem
    | WarmupFinished
    | RecordingStarted
    | RecordingEnded
    | WarmupRunEnded
    | RuntimeChosen
    | RuntimesReleased
    | AcceleratorProblem
    | CompiledAfterReady
)


@dataclass(slots=True)
class EventBus:
    """Delivers each event to its subscribers at once, on the publisher's thread.

    Requests, batches and generations have lines of their own: there are very many of those events.
    Batches are published on worker threads, generations on the threads of token engines, of loads
    and of unloads.
    Subscribers are added before serving starts, must be quick and must not raise.
    """

    _on_lifecycle: list[Callable[[LifecycleEvent], None]] = field(default_factory=list)
    _on_request: list[Callable[[RequestEnded], None]] = field(default_factory=list)
    _on_batch: list[Callable[[BatchEnded], None]] = field(default_factory=list)
    _on_generation: list[Callable[[GenerationEvent], None]] = field(default_factory=list)

    def subscribe_lifecycle(self, subscriber: Callable[[LifecycleEvent], None]) -> None:
        self._on_lifecycle.append(subscriber)

    def subscribe_requests(self, subscriber: Callable[[RequestEnded], None]) -> None:
        self._on_request.append(subscriber)

    def subscribe_batches(self, subscriber: Callable[[BatchEnded], None]) -> None:
        self._on_batch.append(subscriber)

    def subscribe_generations(self, subscriber: Callable[[GenerationEvent], None]) -> None:
        """`subscriber` is called on the threads of token engines, of loads and of unloads."""
        self._on_generation.append(subscriber)

    def publish(self, event: LifecycleEvent) -> None:
        for subscriber in self._on_lifecycle:
            subscriber(event)

    def publish_request(self, event: RequestEnded) -> None:
        for subscriber in self._on_request:
            subscriber(event)

    def publish_batch(self, event: BatchEnded) -> None:
        for subscriber in self._on_batch:
            subscriber(event)

    def publish_generation(self, event: GenerationEvent) -> None:
        for subscriber in self._on_generation:
            subscriber(event)
