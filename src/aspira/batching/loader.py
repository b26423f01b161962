"""Loads a version so that its requests are queued and, where it is told to, share runs."""

from pathlib import Path

from aspira.batching.context import BatchingContext
from aspira.batching.options import BatchingOptions
from aspira.batching.parameters import FindParameters
from aspira.batching.servable import BatchedServable
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Servable


class BatchingLoader:
    """Wraps a runtime's loader, so that what the lifecycle manages is always batched."""

    def __init__(
        self,
        loader: Loader[Servable],
        *,
        servable_id: ServableId,
        directory: Path,
        options: BatchingOptions,
        finder: FindParameters,
        context: BatchingContext,
    ) -> None:
        self._loader = loader
        self._servable_id = servable_id
        self._directory = directory
        self._options = options
        self._finder = finder
        self._context = context

    def load(self) -> BatchedServable:
        parameters = self._finder.find(self._directory)
        return BatchedServable(
            self._loader.load(),
            servable_id=self._servable_id,
            options=self._options,
            parameters=parameters,
            context=self._context,
        )
