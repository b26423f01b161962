"""Routes an HTTP request to its answer, and turns every error into one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aspira.contracts.clock import Clock
from aspira.contracts.errors import (
    Code,
    Internal,
    InvalidArgument,
    ServingError,
    http_status,
    shorten,
)
from aspira.contracts.events import EventBus, RequestEnded
from aspira.frontends.rest.health import (
    LIVENESS_PATH,
    READINESS_PATH,
    answer_liveness,
    answer_readiness,
)
from aspira.frontends.rest.inference import inference_verbs
from aspira.frontends.rest.messages import (
    BodilessError,
    HttpRequest,
    HttpResponse,
    error_response,
)
from aspira.frontends.rest.models import answer_listing, answer_metadata, answer_status
from aspira.frontends.rest.options import RestOptions
from aspira.frontends.rest.routes import Route, find_route, is_api_path, is_listing
from aspira.service.drain import RequestGate
from aspira.service.inference import InferenceService
from aspira.service.models import ModelsService

_NOT_FOUND_PAGE = (
    b"<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>\n</HEAD><BODY>\n"
    b"<H1>Not Found</H1>\n</BODY></HTML>\n"
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """Where metrics are served, and what makes the page, on a thread of the loop's pool."""

    path: str
    render: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class RestSurface:
    """What REST offers, and how it takes requests. `metrics` is None where there is no page."""

    options: RestOptions
    metrics: MetricsPage | None = None


class RestHandler:
    """Every HTTP request ends here. Event loop only; raises nothing."""

    def __init__(
        self,
        inference: InferenceService,
        *,
        models: ModelsService,
        gate: RequestGate,
        events: EventBus,
        clock: Clock,
        surface: RestSurface,
    ) -> None:
        self._inference = inference
        self._models = models
        self._gate = gate
        self._events = events
        self._clock = clock
        self._options = surface.options
        self._metrics = surface.metrics
        self._verbs = inference_verbs(surface.options)

    def handle(self, request: HttpRequest) -> Awaitable[HttpResponse]:
        """The answer to any request."""
        return (self._answer_api if is_api_path(request.path) else self._answer_page)(request)

    async def _answer_page(self, request: HttpRequest) -> HttpResponse:
        if self._metrics is not None and request.path == self._metrics.path:
            return await answer_metrics(self._metrics, request=request)
        if request.path == LIVENESS_PATH and self._options.is_extended:
            return answer_liveness(self._models)
        if request.path == READINESS_PATH and self._options.is_extended:
            return answer_readiness(self._models, gate=self._gate)
        return HttpResponse(404, _NOT_FOUND_PAGE, content_type="text/html")

    async def _answer_api(self, request: HttpRequest) -> HttpResponse:
        started_s = self._clock.now()
        model_name, api = "", ""
        version: int | None = None
        run_s: float | None = None
        code = Code.OK
        try:
            if self._options.is_extended and is_listing(request.method, path=request.path):
                return answer_listing(self._models)
            route = self._find_route(request)
            if route is None:
                return self._answer_without_model(request)
            verb, spec = route
            model_name = spec.name
            answer_inference = self._verbs.get(verb)
            if answer_inference is None:
                return self._answer_question(route)
            api = verb
            answer = await answer_inference(self._inference, spec=spec, request=request)
        except ServingError as error:
            code = error.code
            return self._explain(error)
        except asyncio.CancelledError:
            code = Code.CANCELLED
            raise
        except Exception:
            _logger.exception("A request met a bug: %s %s", request.method, request.target)
            code = Code.INTERNAL
            return error_response(Internal("The server met a bug; its log has the details"))
        else:
            version, run_s = answer.version, answer.run_s
            return answer.response
        finally:
            duration_s = self._clock.now() - started_s
            self._events.publish_request(
                RequestEnded(model_name, version, api, "rest", code, duration_s, run_s)
            )

    def _explain(self, error: ServingError) -> HttpResponse:
        if isinstance(error, BodilessError) and not self._options.is_every_error_explained:
            return HttpResponse(http_status(error.code))
        return error_response(error)

    def _find_route(self, request: HttpRequest) -> Route | None:
        is_lenient = self._options.is_url_lenient
        path = request.path if is_lenient else request.target
        return find_route(request.method, path=path, is_lenient=is_lenient)

    def _answer_without_model(self, request: HttpRequest) -> HttpResponse:
        if request.method == "OPTIONS":
            return _answer_options(request)
        raise InvalidArgument(f"Malformed request: {request.method} {shorten(request.target)}")

    def _answer_question(self, route: Route) -> HttpResponse:
        if route.verb == "metadata":
            return answer_metadata(self._models, spec=route.spec)
        return answer_status(self._models, spec=route.spec)


def _answer_options(request: HttpRequest) -> HttpResponse:
    origin = request.header(b"origin")
    if "http://" not in origin and "https://" not in origin:
        raise BodilessError("An OPTIONS request needs an Origin header with an http(s) origin")
    return HttpResponse(200, content_type="text/html; charset=ISO-8859-1")


async def answer_metrics(page: MetricsPage, *, request: HttpRequest) -> HttpResponse:
    """The metrics page, as TensorFlow Serving answers for it."""
    if request.query:
        text = f"Unexpected path: {shorten(request.target)}. Should be {page.path}"
        return HttpResponse(400, text.encode(), content_type="text/plain")
    body = await asyncio.get_running_loop().run_in_executor(None, page.render)
    return HttpResponse(200, body, content_type="text/plain")
