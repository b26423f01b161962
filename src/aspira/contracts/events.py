"""What happened, as values: floors below observability publish, observability subscribes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from aspira.contracts.errors import Code, ServingError
from aspira.contracts.identity import ServableId


@dataclass(frozen=True, slots=True)
class VersionStateChanged:
    """A version entered a state (`aspira.lifecycle.version_state` names them)."""

    servable_id: ServableId
    state: str
    error: ServingError | None = None


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
class RequestEnded:
    """A request got its one answer. `version` is None where none was chosen.

    `api` is `predict`, `classify`, `metadata`, ... and `entrypoint` is `grpc` or `rest`.
    """

    model_name: str
    version: int | None
    api: str
    entrypoint: str
    code: Code
    duration_s: float


Event = VersionStateChanged | LoadAttemptFailed | SourceProblem | WarmupFinished | RequestEnded
Subscriber = Callable[[Event], None]


@dataclass(slots=True)
class EventBus:
    """Delivers each event to every subscriber at once, on the publisher's thread.

    Subscribers are added before serving starts, must be quick and must not raise.
    """

    _subscribers: list[Subscriber] = field(default_factory=list)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def publish(self, event: Event) -> None:
        for subscriber in self._subscribers:
            subscriber(event)
