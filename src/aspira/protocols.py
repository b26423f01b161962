"""Every protocol of a server, put together from its services: gRPC's methods, the HTTP paths."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from aspira.contracts.clock import Clock
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName
from aspira.frontends.asgi import Application
from aspira.frontends.counting import RequestCounter
from aspira.frontends.generation.asgi import HttpApplication
from aspira.frontends.grpc.asgi import GrpcApplication
from aspira.frontends.grpc.examples import ExamplesServicer
from aspira.frontends.grpc.health import HealthServicer
from aspira.frontends.grpc.methods import Method, Methods
from aspira.frontends.grpc.model_metadata import ModelMetadataServicer
from aspira.frontends.grpc.model_service import ModelServicer
from aspira.frontends.grpc.predict_streamed import PredictStreamedServicer
from aspira.frontends.grpc.prediction import PredictionServicer
from aspira.frontends.grpc.profiler import ProfilerServicer
from aspira.frontends.grpc.reflection import reflection_methods
from aspira.frontends.listeners.dispatch import Dispatcher, answer_rest_is_off
from aspira.frontends.open_inference.data_plane import DataPlane
from aspira.frontends.open_inference.descriptions import Descriptions
from aspira.frontends.open_inference.grpc_inference import InferenceServicer
from aspira.frontends.open_inference.grpc_questions import QuestionsServicer
from aspira.frontends.open_inference.http import OpenInferenceHttp
from aspira.frontends.open_inference.routes import PREFIXES
from aspira.frontends.openai.api import openai_api
from aspira.frontends.openai.embeddings import EmbeddingAnswers
from aspira.frontends.openai.endpoints import PATHS, Endpoints
from aspira.frontends.rest.asgi import RestApplication
from aspira.frontends.rest.handler import MetricsPage, RestHandler, RestSurface
from aspira.service.drain import RequestGate
from aspira.service.embedding import EmbeddingService
from aspira.service.generation import GenerationService
from aspira.service.inference import InferenceService
from aspira.service.models import ModelsService
from aspira.service.profiling import ProfilingService
from aspira.settings import DEFAULT_METRICS_PATH, ProcessOptions, Settings
from aspira.wire.monitoring_config import make_monitoring_config
from aspira.wire.open_inference import make_open_inference_messages
from aspira.wire.text_format import parse_text_file

# The names that TensorFlow Serving's health service knows.
_ALWAYS_HEALTHY = frozenset({"", "ModelService", "PredictionService"})


class Services(NamedTuple):
    """What the protocols ask, and what they report to."""

    inference: InferenceService
    models: ModelsService
    generation: GenerationService
    profiling: ProfilingService
    gate: RequestGate
    clock: Clock
    events: EventBus


class Protocols:
    """`methods` is what gRPC can call, by path; `application` answers every ASGI call."""

    def __init__(
        self,
        services: Services,
        *,
        settings: Settings,
        render_metrics: Callable[[], bytes],
        read_counter: Callable[[str], int],
    ) -> None:
        self._services = services
        self._settings = settings
        self._render_metrics = render_metrics
        self._read_counter = read_counter
        self._descriptions = Descriptions(services.models, gate=services.gate)
        self._data_plane = DataPlane(
            services.inference,
            generation=services.generation,
            keep_alive_s=settings.language_models.keep_alive_s,
        )
        self.methods = self._collect_methods()
        self.application = self._make_application()

    def check_health(self, service: str) -> bool | None:
        """See `CheckHealth`."""
        services = self._services
        if not self._settings.grpc.is_health_reflected:
            return True if service in _ALWAYS_HEALTHY else None
        unavailable = services.models.unavailable()
        if service in services.models.configs:
            return services.gate.is_open and ModelName(service) not in unavailable
        names = {path.split("/")[1] for path in self.methods}
        if service in {"", *names, *(name.rpartition(".")[2] for name in names)}:
            return services.gate.is_open and services.models.can_serve()
        return None

    def _make_application(self) -> Application:
        """All protocols; TensorFlow Serving's alone if no others are wanted."""
        services = self._services
        options, listener = self._settings.rest, self._settings.listener
        rest = RestHandler(
            services.inference,
            models=services.models,
            gate=services.gate,
            events=services.events,
            clock=services.clock,
            surface=RestSurface(
                options, make_metrics_page(self._settings.process, render=self._render_metrics)
            ),
        )
        grpc = GrpcApplication(self.methods, gate=services.gate, clock=services.clock)
        if not listener.rest_port:
            return Dispatcher(grpc=grpc, rest=answer_rest_is_off)
        application = RestApplication(
            rest, gate=services.gate, clock=services.clock, options=options
        )
        if not options.is_extended:
            return Dispatcher(grpc=grpc, rest=application)
        endpoints = Endpoints(
            services.generation,
            embedding=EmbeddingAnswers(EmbeddingService(services.inference.lease)),
            keep_alive_s=self._settings.language_models.keep_alive_s,
        )
        open_inference = OpenInferenceHttp(
            self._data_plane, descriptions=self._descriptions, timeout_s=options.timeout_s
        )
        make_application = partial(
            HttpApplication,
            gate=services.gate,
            events=services.events,
            clock=services.clock,
            has_cors=options.is_cors_enabled,
        )
        return Dispatcher(
            grpc=grpc,
            rest=application,
            by_path=dict.fromkeys(PATHS, make_application(openai_api(endpoints))),
            by_prefix=dict.fromkeys(PREFIXES, make_application(open_inference.api)),
        )

    def _collect_methods(self) -> Methods:
        services = self._services
        prediction = PredictionServicer(
            services.inference,
            events=services.events,
            clock=services.clock,
            use_tensor_content=self._settings.grpc.use_tensor_content,
        )
        methods: dict[str, Method] = {
            **prediction.methods(),
            **ExamplesServicer(
                services.inference, events=services.events, clock=services.clock
            ).methods(),
            **ModelMetadataServicer(services.models).methods(),
            **ModelServicer(services.models, read_counter=self._read_counter).methods(),
        }
        if self._settings.grpc.is_extended:
            methods |= self._collect_added_methods()
        if self._settings.grpc.is_profiler_enabled:
            methods |= ProfilerServicer(services.profiling).methods()
        if self._settings.grpc.is_health_enabled:
            methods |= HealthServicer(self.check_health, gate=services.gate).methods()
        return methods | reflection_methods(methods)

    def _collect_added_methods(self) -> Methods:
        """Those that the original does not have."""
        services = self._services
        classes = make_open_inference_messages()
        return {
            **PredictStreamedServicer(
                services.inference,
                generation=services.generation,
                counter=RequestCounter("grpc", events=services.events, clock=services.clock),
                gate=services.gate,
                use_tensor_content=self._settings.grpc.use_tensor_content,
            ).methods(),
            **QuestionsServicer(self._descriptions, classes=classes).methods(),
            **InferenceServicer(
                self._data_plane,
                classes=classes,
                counter=RequestCounter(
                    "open_inference_grpc", events=services.events, clock=services.clock
                ),
                gate=services.gate,
                clock=services.clock,
            ).methods(),
        }


def make_metrics_page(
    options: ProcessOptions, *, render: Callable[[], bytes]
) -> MetricsPage | None:
    """The page that the flags ask for, if any."""
    if not options.monitoring_config_file:
        if not options.is_metrics_default:
            return None
        return MetricsPage(DEFAULT_METRICS_PATH, render)
    config = make_monitoring_config()
    parse_text_file(Path(options.monitoring_config_file), into=config)
    if not config.prometheus_config.enable:
        return None
    return MetricsPage(config.prometheus_config.path or DEFAULT_METRICS_PATH, render)
