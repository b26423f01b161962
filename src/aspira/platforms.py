"""Which loader makes a version of which platform ready, batching included."""

from pathlib import Path
from typing import Protocol

from aspira.batching.context import BatchingContext
from aspira.batching.loader import BatchingLoader
from aspira.batching.parameters import ParametersFinder
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Servable, Served
from aspira.llm.cache_budget import CacheBudget
from aspira.llm.loader import LanguageModelContext, LanguageModelLoader
from aspira.llm.model_source import FindLanguageModel
from aspira.runtimes.litert import MODEL_FILE, LitertLoader
from aspira.runtimes.tensorflow import TensorflowLoader
from aspira.settings import Settings


class RuntimeLoaders(Protocol):
    """Makes the loader of one version in its framework."""

    def __call__(self, path: Path, *, settings: Settings, events: EventBus) -> Loader[Servable]: ...


def make_runtime_loader(path: Path, *, settings: Settings, events: EventBus) -> Loader[Servable]:
    """The loader of a SavedModel directory, or of a TFLite file in it where that is preferred."""
    saved_model = TensorflowLoader(
        path, options=settings.tensorflow, warmup=settings.warmup, events=events
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


class LanguageModelChoice:
    """Chooses a loader at each load, by whether a language model is there."""

    def __init__(
        self,
        path: Path,
        *,
        servable_id: ServableId,
        find: FindLanguageModel,
        context: LanguageModelContext,
        otherwise: Loader[Served],
    ) -> None:
        self._path = path
        self._servable_id = servable_id
        self._find = find
        self._context = context
        self._otherwise = otherwise

    def load(self) -> Served:
        source = self._find(self._path)
        if source is None:
            return self._otherwise.load()
        loader = LanguageModelLoader(source, servable_id=self._servable_id, context=self._context)
        return loader.load()


class Platforms:
    """Makes loaders whose servables are batched, or stream; passed to the lifecycle manager.

    Raises:
        ServingError: the file of batching parameters cannot be used.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        events: EventBus,
        batching: BatchingContext,
        make_runtime_loader: RuntimeLoaders,
        find_language_model: FindLanguageModel,
    ) -> None:
        self._settings = settings
        self._events = events
        self._batching = batching
        self._parameters_finder = ParametersFinder(settings.batching)
        self._make_runtime_loader = make_runtime_loader
        self._find_language_model = find_language_model
        self._language_models = LanguageModelContext(
            batching.clock, events, CacheBudget(settings.language_models.cache_budget_mib)
        )

    def make_loader(self, servable_id: ServableId, *, path: Path) -> Loader[Served]:
        """The loader of one version."""
        loader = self._make_runtime_loader(path, settings=self._settings, events=self._events)
        batched = BatchingLoader(
            loader,
            servable_id=servable_id,
            directory=path,
            options=self._settings.batching,
            finder=self._parameters_finder,
            context=self._batching,
        )
        return LanguageModelChoice(
            path,
            servable_id=servable_id,
            find=self._find_language_model,
            context=self._language_models,
            otherwise=batched,
        )
