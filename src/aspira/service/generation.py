"""Generate text: choose the version, lease it for as long as there are streams, tokenize, submit.

A version that is replaced goes on for its streams until they end, or until the drain is over; then
they end with an error that says so.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from aspira.contracts.errors import FailedPrecondition, NotFound, ServingError, Unavailable
from aspira.contracts.events import LifecycleEvent, VersionStateChanged
from aspira.contracts.generation import GenerateRequest
from aspira.contracts.identity import ModelSpec, ServableId
from aspira.contracts.servable import Served
from aspira.lifecycle.lease import Lease
from aspira.lifecycle.version_state import VersionState
from aspira.llm.constraints import MakeConstraint
from aspira.llm.encoders.model import EmbeddingModel
from aspira.llm.model_text import TokenPrompt
from aspira.llm.servable import LanguageModel
from aspira.llm.streams import TokenStream

_Sessions = set["GenerationSession"]
LeaseVersion = Callable[[ModelSpec], Lease[Served]]
_OnClose = Callable[["GenerationSession"], None]


def lease_model(lease: LeaseVersion, *, spec: ModelSpec) -> Lease[Served]:
    """As `lease`; for APIs whose clients take the name of a model from a list.

    Raises:
        ServingError: as `lease`; NotFound says where the list is.
    """
    try:
        return lease(spec)
    except NotFound as error:
        message = f"{error.message}. GET /v1/models lists the models that can be asked."
        raise NotFound(message) from None


class GenerationService:
    """Every generation of every protocol. Event loop only.

    It has to be told of the lifecycle's events, so that it knows when a version is replaced.
    """

    def __init__(self, lease: LeaseVersion, *, stream_drain_s: float) -> None:
        self._lease = lease
        self._stream_drain_s = stream_drain_s
        self._sessions: defaultdict[ServableId, _Sessions] = defaultdict(set)
        self._leaving: list[_Sessions] = []  # of versions that drain

    def open(self, spec: ModelSpec) -> "GenerationSession":
        """The version that answers `spec`, kept loaded until the session is closed.

        Raises:
            NotFound: no such model or version is ready.
            FailedPrecondition: it is no language model.
        """
        lease = lease_model(self._lease, spec=spec)
        model = lease.servable
        if isinstance(model, LanguageModel):
            return self._begin(model, lease=lease)
        lease.release()
        if isinstance(model, EmbeddingModel):
            raise FailedPrecondition(
                f"{spec.name} is an embedding model, which makes vectors and no text: ask "
                "it by /v1/embeddings, and a language model for text"
            )
        raise FailedPrecondition(
            f"{spec.name} is not a language model; ask it by /v1/models/{spec.name}:predict"
        )

    def try_open(self, spec: ModelSpec) -> "GenerationSession | None":
        """As `open`; None if what answers is no language model."""
        lease = lease_model(self._lease, spec=spec)
        model = lease.servable
        if isinstance(model, LanguageModel):
            return self._begin(model, lease=lease)
        lease.release()
        return None

    def _begin(self, model: LanguageModel, *, lease: Lease[Served]) -> "GenerationSession":
        sessions = self._sessions[lease.servable_id]
        session = GenerationSession(model, lease=lease, on_close=sessions.discard)
        sessions.add(session)
        return session

    def on_lifecycle(self, event: LifecycleEvent) -> None:
        """Give the streams of a version that is being replaced a time to end."""
        if not isinstance(event, VersionStateChanged):
            return
        if event.state == VersionState.DRAINING.value:
            # No session is added to a version that has left, but its number may come again.
            sessions = self._sessions.pop(event.servable_id, set())
            self._leaving = [others for others in self._leaving if others]
            if sessions:
                self._leaving.append(sessions)
                self._end_later(
                    sessions, delay_s=self._stream_drain_s, leaving="version of the model"
                )

    def end_streams_after(self, delay_s: float) -> None:
        """The server shuts down: end what is then still open, with an error rather than silence."""
        for sessions in (*self._sessions.values(), *self._leaving):
            self._end_later(sessions, delay_s=delay_s, leaving="server")

    def _end_later(self, sessions: _Sessions, *, delay_s: float, leaving: str) -> None:
        error = Unavailable(
            f"This {leaving} is being shut down, and the time for answers under way is over; "
            "send the request again"
        )
        asyncio.get_running_loop().call_later(delay_s, partial(_fail_all, sessions, error=error))


class GenerationSession:
    """One request's hold on a version, with its streams. Closing it aborts those that go on."""

    def __init__(self, model: LanguageModel, *, lease: Lease[Served], on_close: _OnClose) -> None:
        self.model = model
        self.servable_id = lease.servable_id
        self._lease = lease
        self._on_close = on_close
        self._streams: list[TokenStream] = []
        self._failure: ServingError | None = None

    def start(
        self,
        prompt: TokenPrompt,
        *,
        request: GenerateRequest,
        make_constraint: MakeConstraint | None = None,
    ) -> TokenStream:
        """Queue one prompt; `request` says all else of it.

        Raises:
            ServingError: it can never be served, the queue is full, or the version is leaving.
        """
        if self._failure is not None:
            raise self._failure
        full = replace(request, prompt=prompt, times=self.model.times)
        stream = self.model.submit(full, make_constraint=make_constraint)
        self._streams.append(stream)
        return stream

    def fail(self, error: ServingError) -> None:
        """End its streams with an error, and have it start no others."""
        self._failure = error
        for stream in self._streams:
            stream.fail(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for stream in self._streams:
                await stream.aclose()
        finally:
            self._on_close(self)
            self._lease.release()


def _fail_all(sessions: _Sessions, *, error: ServingError) -> None:
    for session in tuple(sessions):
        session.fail(error)
