"""Which loader makes a version of which platform ready, batching included."""

from pathlib import Path

from aspira.batching.completions import Completions
from aspira.batching.servable import BatchedServable, BatchingLoader
from aspira.contracts.clock import Clock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader
from aspira.contracts.tensors import Tensors
from aspira.runtimes.tensorflow import TensorflowLoader
from aspira.settings import Settings


class Platforms:
    """Makes loaders; passed to the lifecycle manager."""

    def __init__(
        self,
        settings: Settings,
        *,
        events: EventBus,
        clock: Clock,
        completions: Completions[Tensors],
    ) -> None:
        self._settings = settings
        self._events = events
        self._clock = clock
        self._completions = completions

    def make_loader(self, servable_id: ServableId, *, path: Path) -> Loader[BatchedServable]:
        """The loader of a SavedModel directory."""
        loader = TensorflowLoader(
            servable_id,
            path=path,
            options=self._settings.tensorflow,
            warmup=self._settings.warmup,
            events=self._events,
        )
        return BatchingLoader(
            loader,
            name=f"{servable_id.name}-{servable_id.version}",
            options=self._settings.batching,
            clock=self._clock,
            completions=self._completions,
        )
