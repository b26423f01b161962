"""What loads one version directory in its framework, ready for the sizes its batches may have."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from aspira.batching.options import BatchingParameters
from aspira.batching.parameters import FindParameters
from aspira.contracts.events import EventBus
from aspira.contracts.servable import Loader, Servable
from aspira.runtimes.litert import MODEL_FILE, LitertLoader
from aspira.runtimes.saved_model_loader import make_saved_model_loader
from aspira.settings import Settings


class RuntimeLoaders(Protocol):
    """Makes the loader of one version in its framework."""

    def __call__(self, path: Path, *, settings: Settings, events: EventBus) -> Loader[Servable]: ...


def make_runtime_loader(path: Path, *, settings: Settings, events: EventBus) -> Loader[Servable]:
    """The loader of a SavedModel directory, or of a TFLite file in it where that is preferred."""
    saved_model = make_saved_model_loader(
        path,
        options=settings.tensorflow,
        accelerator=settings.accelerator,
        warmup=settings.warmup,
        events=events,
    )
    if not settings.litert.is_preferred:
        return saved_model
    tflite = LitertLoader(path, options=settings.litert, warmup=settings.warmup, events=events)
    return FilePreference(path / MODEL_FILE, preferred=tflite, otherwise=saved_model)


class FilePreference:
    """Chooses a loader at each load, by whether a file is there."""

    def __init__(
        self, file: Path, *, preferred: Loader[Servable], otherwise: Loader[Servable]
    ) -> None:
        self._file = file
        self._preferred = preferred
        self._otherwise = otherwise

    def load(self) -> Servable:
        loader = self._preferred if self._file.exists() else self._otherwise
        return loader.load()


class BatchSizesLoader:
    """Loads a version that is made ready for the sizes that its batches may have.

    Accelerators compile for the allowed ones, and with `is_for_all_batch_sizes` warm-up records are
    run with every size. The version's own file may name them, so it is read on the load thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        settings: Settings,
        events: EventBus,
        finder: FindParameters,
        make_runtime_loader: RuntimeLoaders,
    ) -> None:
        self._path = path
        self._settings = settings
        self._events = events
        self._finder = finder
        self._make_runtime_loader = make_runtime_loader

    def load(self) -> Servable:
        parameters = self._finder.find(self._path)
        settings = self._settings
        if parameters is not None:
            settings = _with_batch_sizes(settings, parameters=parameters)
        loader = self._make_runtime_loader(self._path, settings=settings, events=self._events)
        return loader.load()


def _with_batch_sizes(settings: Settings, *, parameters: BatchingParameters) -> Settings:
    warmup, accelerator = settings.warmup, settings.accelerator
    if warmup.is_for_all_batch_sizes:
        sizes = {*warmup.batch_sizes, *choose_warmup_sizes(parameters)}
        warmup = replace(warmup, batch_sizes=tuple(sorted(sizes)))
    if parameters.allowed_batch_sizes:
        accelerator = replace(accelerator, batch_sizes=parameters.allowed_batch_sizes)
    return replace(settings, warmup=warmup, accelerator=accelerator)


def choose_warmup_sizes(parameters: BatchingParameters) -> tuple[int, ...]:
    """The sizes that batches are padded to; without such, powers of two up to the largest."""
    if parameters.allowed_batch_sizes:
        return parameters.allowed_batch_sizes
    largest = parameters.execution_size
    return (*(2**power for power in range((largest - 1).bit_length())), largest)
