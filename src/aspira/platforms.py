"""Which loader makes a version of which platform ready, batching included."""

from pathlib import Path
from typing import Protocol

from aspira.batching.completions import Completions
from aspira.batching.servable import BatchedServable, BatchingLoader
from aspira.contracts.clock import Clock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Servable
from aspira.contracts.tensors import Tensors
from aspira.runtimes.tensorflow import TensorflowLoader
from aspira.settings import Settings


class RuntimeLoaders(Protocol):
    """Makes the loader of one version in its framework."""

    def __call__(self, path: Path, *, settings: Settings, events: EventBus) -> Loader[Servable]: ...


def make_runtime_loader(path: Path, *, settings: Settings, events: EventBus) -> Loader[Servable]:
    """The loader of a SavedModel directory."""
    return TensorflowLoader(
        path, options=settings.tensorflow, warmup=settings.warmup, events=events
    )


class Platforms:
    """Makes loaders whose servables are batched; passed to the lifecycle manager."""

    def __init__(
        self,
        settings: Settings,
        *,
        events: EventBus,
        clock: Clock,
        completions: Completions[Tensors],
        make_runtime_loader: RuntimeLoaders,
    ) -> None:
        self._settings = settings
        self._events = events
        self._clock = clock
        self._completions = completions
        self._make_runtime_loader = make_runtime_loader

    def make_loader(self, servable_id: ServableId, *, path: Path) -> Loader[BatchedServable]:
        """The loader of one version."""
        loader = self._make_runtime_loader(path, settings=self._settings, events=self._events)
        return BatchingLoader(
            loader,
            name=f"{servable_id.name}-{servable_id.version}",
            options=self._settings.batching,
            clock=self._clock,
            completions=self._completions,
        )
