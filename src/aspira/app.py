"""The composition root: builds a server from its settings, starts it and stops it in order."""

import asyncio
import gc
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from aspira.batching.completions import Completions
from aspira.batching.context import BatchingContext
from aspira.contracts.clock import SystemClock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName
from aspira.contracts.servable import Served
from aspira.contracts.tensors import Tensors
from aspira.frontends.admin.handler import AdminHandler, AdminServices
from aspira.frontends.admin.listener import AdminListener
from aspira.frontends.listeners.tls import make_ssl_context, read_tls
from aspira.frontends.rest.handler import MetricsPage
from aspira.lifecycle.filesystem_source import FilesystemSource
from aspira.lifecycle.listing import MonitoredModel
from aspira.lifecycle.manager import Manager
from aspira.llm.cache_budget import CacheBudget
from aspira.llm.choice import LanguageModels
from aspira.llm.loader import LanguageModelContext
from aspira.llm.model_source import FindLanguageModel, find_language_model
from aspira.observability.logging import EventLogger
from aspira.observability.subscribers import ServingMetrics
from aspira.observability.tracing import make_tracer
from aspira.platform_config import apply_platform_config
from aspira.platforms import Platforms
from aspira.protocols import Protocols, Services, make_metrics_page
from aspira.routing.table import RoutingTable
from aspira.runtimes.custom_ops import load_op_libraries
from aspira.runtimes.tensorflow import make_session_config
from aspira.runtimes.thread_pools import bound_thread_pools
from aspira.service.config_watch import ConfigWatch
from aspira.service.drain import RequestGate
from aspira.service.generation import GenerationService
from aspira.service.inference import InferenceService, Router
from aspira.service.listing import find_predictor
from aspira.service.model_config import (
    ModelConfigs,
    decode_model_configs,
    parse_model_config_text,
    single_model_configs,
)
from aspira.service.models import ModelsService
from aspira.service.profiling import ProfilingService
from aspira.service.recording import RecordingService
from aspira.settings import DEFAULT_METRICS_PATH, ModelOptions, Settings
from aspira.version_loaders import RuntimeLoaders, make_runtime_loader
from aspira.wire.text_format import read_text_file

_UNLOAD_S = 3.0
_LAST_ERRORS_S = 1.0
"""Of the grace period, for streams that it cuts short to tell their clients so."""
_LAST_TRACES_S = 1.0
_SWITCH_INTERVAL_S = 0.0005
_YOUNG_OBJECTS = 10_000

_logger = logging.getLogger(__name__)


class Server:
    """All parts of a running server. Built and used on one event loop.

    `make_runtime_loader` decides what a version directory is loaded with, unless
    `find_language_model` finds a language model in it; tests and benchmarks put toys there.
    `admin` is the admin port, if it is open.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        make_runtime_loader: RuntimeLoaders = make_runtime_loader,
        find_language_model: FindLanguageModel = find_language_model,
        admin: AdminListener | None = None,
    ) -> None:
        settings = apply_platform_config(settings)
        self._settings = settings
        self._admin = admin
        self._is_started = False
        clock, events = SystemClock(), EventBus()
        self._metrics = ServingMetrics(clock=clock)
        events.subscribe_lifecycle(EventLogger(sys.stderr).on_event)
        self._metrics.attach(events)
        self._tracer = make_tracer(events)
        completions = Completions[Tensors](asyncio.get_running_loop())
        budget = CacheBudget(settings.language_models.cache_budget_mib)
        language_models = LanguageModels(
            find_language_model,
            context=LanguageModelContext(clock, events, budget),
            must_generate=self._must_generate,
        )
        platforms = Platforms(
            settings,
            events=events,
            batching=BatchingContext(clock, completions, events),
            make_runtime_loader=make_runtime_loader,
            language_models=language_models,
        )
        self._manager = Manager[Served](
            platforms.make_loader, options=settings.lifecycle, events=events
        )
        self._source = FilesystemSource(
            self._manager.aspire, events=events, options=settings.lifecycle
        )
        self.gate = RequestGate()
        inference = InferenceService(
            self._manager, router=Router(RoutingTable()), clock=clock, options=settings.service
        )
        self._models = ModelsService(
            self._manager,
            source=self._source,
            inference=inference,
            allow_labels_for_unavailable=settings.models.allow_labels_for_unavailable,
            options=settings.service,
            events=events,
        )
        self.clock = clock
        self._config_watch = _make_config_watch(settings.models, models=self._models)
        self._recording = RecordingService(inference, models=self._models, events=events)
        self._profiling = ProfilingService()
        self._generation = GenerationService(
            inference.lease, stream_drain_s=settings.language_models.stream_drain_s
        )
        events.subscribe_lifecycle(self._generation.on_lifecycle)
        protocols = Protocols(
            self._services(inference, events=events),
            settings=settings,
            render_metrics=self._render_metrics,
            read_counter=self._metrics.read_first,
        )
        self.methods = protocols.methods
        self.application = protocols.application
        self.check_health = protocols.check_health

    def _services(self, inference: InferenceService, *, events: EventBus) -> Services:
        return Services(
            inference,
            self._models,
            self._generation,
            self._profiling,
            self.gate,
            self.clock,
            events,
        )

    def _must_generate(self, name: ModelName) -> bool:
        return self._models.must_generate(name)

    async def start(self) -> None:
        """Load the configured models; returns when each is available, or known not to be.

        Raises:
            ServingError: the configuration is wrong.
        """
        configs = read_model_configs(self._settings.models)
        bound_thread_pools(os.environ)
        if self._settings.tensorflow.session_config_file:
            # Each load reads it; what is wrong with it concerns all of them, and is told now.
            await asyncio.to_thread(make_session_config, self._settings.tensorflow)
        load_op_libraries(self._settings.tensorflow.custom_op_libraries)
        # Frameworks leave millions of objects that never die; walking them would stop every
        # request for a fifth of a second, time and again.
        gc.collect()
        gc.freeze()
        # Objects of the requests in flight are young, too, and were looked at time and again.
        gc.set_threshold(_YOUNG_OBJECTS)
        # A thread that loads a model in Python keeps the interpreter's lock this long, not longer.
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        await self._models.start(configs)
        await self._models.wait_started()
        for reason in self._models.unavailable().values():
            _logger.error("Serving without a model: %s", reason)
        if self._settings.models.config_file:
            self._config_watch.start(configs)
        self._is_started = True

    async def drain(self, *, grace_s: float) -> bool:
        """Refuse new requests, finish those in flight, unload. False if `grace_s` was too short."""
        self.gate.close()
        self._recording.finish()
        self._profiling.stop()
        self._generation.end_streams_after(max(grace_s - _LAST_ERRORS_S, 0.0))
        try:
            async with asyncio.timeout(grace_s):
                await self._config_watch.stop()
                await self._source.stop()
                await self.gate.wait_empty()
        except TimeoutError:
            return False
        # What still loads cannot be cut short, and is in nobody's way.
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNLOAD_S):
                await self._manager.stop()
        return True

    async def close(self) -> None:
        """After `drain`, when the other ports are closed: send traces, close the admin port."""
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.flush, _LAST_TRACES_S)
        if self._admin is not None:
            await self._admin.stop()

    def admin_services(self) -> AdminServices:
        """What the admin port tells and takes orders for."""
        page = make_metrics_page(self._settings.process, render=self._render_metrics)
        return AdminServices(
            models=self._models,
            gate=self.gate,
            recording=self._recording,
            # The port was asked for, so the page is there whether or not REST has one.
            metrics=page or MetricsPage(DEFAULT_METRICS_PATH, self._render_metrics),
            reread=self._reread,
            is_started=lambda: self._is_started,
        )

    async def _reread(self) -> None:
        if self._settings.models.config_file:
            await self._config_watch.reread()
        else:
            await self._models.reload(self._models.configs)

    def _render_metrics(self) -> bytes:
        predictors = [(name, find_predictor(one)) for name, one in self._manager.ready()]
        queues = [(name, one.statistics()) for name, one in predictors if one is not None]
        return self._metrics.render(queues)


async def open_server(settings: Settings) -> Server:
    """A server that is yet to be started, its admin port open.

    The port comes first: it answers while frameworks are imported, on a thread, which takes longer
    than all else until models load.

    Raises:
        ServingError: the admin port cannot be bound, or a file of the settings cannot be used.
    """
    handler, admin = AdminHandler(), None
    if settings.admin.port:
        tls = read_tls(settings.listener.ssl_config_file)
        context = None if tls is None else make_ssl_context(tls, is_certificate_optional=True)
        admin = AdminListener(handler.handle, tls=context)
        host = settings.listener.at(settings.admin.host).bind_host
        await admin.start(host, port=settings.admin.port)
        await asyncio.to_thread(_import_frameworks)
    server = Server(settings, admin=admin)
    handler.attach(server.admin_services())
    return server


def _import_frameworks() -> None:
    """What the server imports when it is built."""
    from tensorflow_serving.apis import prediction_service_pb2  # noqa: F401


def read_model_configs(options: ModelOptions) -> ModelConfigs:
    """The models to serve, from the config file or the two single-model flags.

    Raises:
        ServingError: the file cannot be read, or an entry is wrong.
    """
    if not options.config_file:
        return single_model_configs(MonitoredModel(ModelName(options.name), options.base_path))
    text = read_text_file(Path(options.config_file))
    message = parse_model_config_text(text, origin=options.config_file)
    return decode_model_configs(message) or {}


def _make_config_watch(options: ModelOptions, *, models: ModelsService) -> ConfigWatch:
    return ConfigWatch(
        Path(options.config_file),
        reload=models.reload,
        poll_interval_s=options.config_poll_interval_s,
        is_unchanged_applied=options.is_unchanged_config_applied,
    )
