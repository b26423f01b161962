"""Which loader makes a version of which platform ready, batching included."""

from pathlib import Path

from aspira.batching.context import BatchingContext
from aspira.batching.loader import BatchingLoader
from aspira.batching.parameters import ParametersFinder
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Servable, Served
from aspira.llm.choice import LanguageModels
from aspira.llm.encoders.loader import EncoderChoice
from aspira.runtimes.accelerator_options import TENSORFLOW
from aspira.runtimes.tflite_batching import TfliteBatching
from aspira.settings import Settings
from aspira.version_loaders import BatchSizesLoader, RuntimeLoaders


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
        language_models: LanguageModels,
    ) -> None:
        self._settings = settings
        self._events = events
        self._batching = batching
        self._parameters_finder = TfliteBatching(
            settings.litert, otherwise=ParametersFinder(settings.batching)
        )
        self._make_runtime_loader = make_runtime_loader
        self._language_models = language_models

    def make_loader(self, servable_id: ServableId, *, path: Path) -> Loader[Served]:
        """The loader of one version."""

        def queued(loader: Loader[Servable]) -> Loader[Served]:
            return BatchingLoader(
                loader,
                servable_id=servable_id,
                directory=path,
                options=self._settings.batching,
                finder=self._parameters_finder,
                context=self._batching,
            )

        encoder = EncoderChoice(
            path,
            servable_id=servable_id,
            batching=self._settings.batching,
            context=self._batching,
            otherwise=queued(self._make_loader(path)),
        )
        return self._language_models.make_loader(
            servable_id, path=path, otherwise=encoder, queued=queued
        )

    def _make_loader(self, path: Path) -> Loader[Servable]:
        is_accelerated = self._settings.accelerator.kind != TENSORFLOW
        if is_accelerated or self._settings.warmup.is_for_all_batch_sizes:
            return BatchSizesLoader(
                path,
                settings=self._settings,
                events=self._events,
                finder=self._parameters_finder,
                make_runtime_loader=self._make_runtime_loader,
            )
        return self._make_runtime_loader(path, settings=self._settings, events=self._events)
