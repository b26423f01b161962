"""Answers the admin port: health from the first moment, all else once there is a server."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aspira.contracts.errors import (
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ServingError,
    Unavailable,
)
from aspira.frontends.admin.recording import answer_recording
from aspira.frontends.offload import on_thread
from aspira.frontends.rest.handler import MetricsPage, answer_metrics
from aspira.frontends.rest.health import (
    LIVENESS_PATH,
    READINESS_PATH,
    answer_alive,
    answer_liveness,
    answer_readiness,
    answer_starting,
)
from aspira.frontends.rest.messages import HttpRequest, HttpResponse, error_response
from aspira.frontends.rest.models import answer_listing, answer_metadata, answer_status
from aspira.frontends.rest.routes import find_recording, find_route, is_listing
from aspira.service.drain import RequestGate
from aspira.service.model_config import parse_model_configs
from aspira.service.models import ModelsService
from aspira.service.recording import RecordingService

_RELOAD_PATH = "/v1/config:reload"
_BODY = "request body"


@dataclass(frozen=True, slots=True)
class AdminServices:
    """What a server offers to its operators.

    `reread` looks at the configured models again, from the config file if there is one; it raises
    as `ModelsService.reload`. `is_started` tells whether the other ports are about to open or have.
    """

    models: ModelsService
    gate: RequestGate
    recording: RecordingService
    metrics: MetricsPage
    reread: Callable[[], Awaitable[None]]
    is_started: Callable[[], bool]


class AdminHandler:
    """Every admin request ends here. Event loop only."""

    def __init__(self) -> None:
        self._services: AdminServices | None = None

    def attach(self, services: AdminServices) -> None:
        """From now on there is a server to tell about."""
        self._services = services

    async def handle(self, request: HttpRequest, *, is_verified: bool) -> HttpResponse:
        """The answer to any request.

        Health is told to whoever asks, such as a probe that has no certificate.
        """
        is_question = request.method in {"GET", "HEAD"}
        if is_question and request.path == LIVENESS_PATH:
            return self._answer_liveness()
        if is_question and request.path == READINESS_PATH:
            return self._answer_readiness()
        try:
            if not is_verified:
                raise PermissionDenied("Only health is told without a client certificate")
            if self._services is None:
                raise Unavailable("The server is starting")
            if is_question:
                return await _answer_question(self._services, request=request)
            # A drain waits for what is being carried out, and ends a recording.
            with self._services.gate:
                return await _carry_out(self._services, request=request)
        except ServingError as error:
            return error_response(error)

    def _answer_liveness(self) -> HttpResponse:
        return answer_alive() if self._services is None else answer_liveness(self._services.models)

    def _answer_readiness(self) -> HttpResponse:
        services = self._services
        if services is None:
            return answer_starting()
        return answer_readiness(
            services.models, gate=services.gate, is_started=services.is_started()
        )


async def _answer_question(services: AdminServices, *, request: HttpRequest) -> HttpResponse:
    if request.path == services.metrics.path:
        return await answer_metrics(services.metrics, request=request)
    if is_listing("GET", path=request.path):
        return answer_listing(services.models, with_paths=True)
    route = find_route("GET", path=request.path)
    if route is None:
        raise _nothing_there(services)
    if route.verb == "metadata":
        return answer_metadata(services.models, spec=route.spec)
    return answer_status(services.models, spec=route.spec)


async def _carry_out(services: AdminServices, *, request: HttpRequest) -> HttpResponse:
    # A page in a browser on the operator's machine could post here without asking. Browsers tell
    # where such a request comes from; tools do not.
    if request.header(b"origin"):
        raise PermissionDenied("The admin port takes no orders from web pages")
    if request.method == "POST" and request.path == _RELOAD_PATH:
        return await _reload(services, request=request)
    spec = find_recording(request.path) if request.method == "POST" else None
    if spec is None:
        raise _nothing_there(services)
    return await answer_recording(services.recording, spec=spec, request=request)


async def _reload(services: AdminServices, *, request: HttpRequest) -> HttpResponse:
    """Apply the configuration of the body, or look at the configured one again if it is empty."""
    if request.body.strip():
        try:
            text = request.body.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument("The request body is not UTF-8 text") from error
        configs = await on_thread(partial(parse_model_configs, text, origin=_BODY))
        await services.models.reload(configs)
    else:
        await services.reread()
    return answer_listing(services.models, with_paths=True)


def _nothing_there(services: AdminServices) -> NotFound:
    return NotFound(
        f"The admin port has GET {LIVENESS_PATH}, {READINESS_PATH}, {services.metrics.path}, "
        f"/v1/models and /v1/models/NAME, and POST {_RELOAD_PATH} and "
        "/v1/models/NAME:record_warmup"
    )
