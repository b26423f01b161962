"""Embed texts: choose the version, lease it, have it make one vector of each."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aspira.contracts.embedding import EmbeddingLimits, TextInput
from aspira.contracts.errors import FailedPrecondition
from aspira.contracts.identity import ModelSpec
from aspira.contracts.servable import Served
from aspira.lifecycle.lease import Lease
from aspira.llm.encoders.model import EmbeddingModel, Embeddings
from aspira.llm.servable import LanguageModel
from aspira.service.generation import LeaseVersion, lease_model


class EmbeddingService:
    """Every embedding of every protocol. Event loop only."""

    def __init__(self, lease: LeaseVersion) -> None:
        self._lease = lease

    def open(self, spec: ModelSpec) -> "EmbeddingSession":
        """The version that answers `spec`, kept loaded until the session is closed.

        Raises:
            NotFound: no such model or version is ready.
            FailedPrecondition: it makes no embeddings.
        """
        lease = lease_model(self._lease, spec=spec)
        model = lease.servable
        if isinstance(model, EmbeddingModel):
            return EmbeddingSession(model, lease=lease)
        lease.release()
        if isinstance(model, LanguageModel):
            raise FailedPrecondition(
                f"{spec.name} is a language model, which makes text and no embeddings: ask it by "
                "/v1/chat/completions or /v1/completions, and an encoder, such as a "
                "sentence-transformers directory, by /v1/embeddings"
            )
        raise FailedPrecondition(
            f"{spec.name} is not an embedding model; ask it by /v1/models/{spec.name}:predict"
        )


class EmbeddingSession:
    """One request's hold on a version."""

    def __init__(self, model: EmbeddingModel, *, lease: Lease[Served]) -> None:
        self._model = model
        self.servable_id = lease.servable_id
        self._lease = lease

    async def embed(self, texts: Sequence[TextInput], *, limits: EmbeddingLimits) -> Embeddings:
        """See `EmbeddingModel.embed`."""
        return await self._model.embed(texts, limits=limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lease.release()
