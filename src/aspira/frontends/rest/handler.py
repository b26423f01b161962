"""Routes an HTTP request to its answer, and turns every error into one."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from aspira.contracts.clock import Clock
from aspira.contracts.errors import Code, Internal, InvalidArgument, ServingError, http_status
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
from aspira.frontends.rest.routes import find_route, is_api_path, is_listing
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


@dataclass(slots=True)
class _Outcome:
    """What there is to say of a request once it has ended."""

    model_name: str = ""
    api: str = ""
    version: int | None = None
    code: Code = Code.OK
    run_s: float | None = None


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

    async def handle(self, request: HttpRequest) -> HttpResponse:
        """The answer to any request."""
        if is_api_path(request.path):
            return await self._answer_api(request)
        if self._metrics is not None and request.path == self._metrics.path:
            return await answer_metrics(self._metrics, request=request)
        if request.path == LIVENESS_PATH and self._options.is_extended:
            return answer_liveness(self._models)
        if request.path == READINESS_PATH and self._options.is_extended:
            return answer_readiness(self._models, gate=self._gate)
        return HttpResponse(404, _NOT_FOUND_PAGE, content_type="text/html")

    async def _answer_api(self, request: HttpRequest) -> HttpResponse:
        started_s = self._clock.now()
        outcome = _Outcome()
        try:
            return await self._try_answer_api(request, outcome=outcome)
        except ServingError as error:
            outcome.code = error.code
            return self._explain(error)
        except asyncio.CancelledError:
            outcome.code = Code.CANCELLED
            raise
        except Exception:
            _logger.exception("A request met a bug: %s %s", request.method, request.target)
            outcome.code = Code.INTERNAL
            return error_response(Internal("The server met a bug; its log has the details"))
        finally:
            self._publish(outcome, duration_s=self._clock.now() - started_s)

    def _explain(self, error: ServingError) -> HttpResponse:
        if isinstance(error, BodilessError) and not self._options.is_every_error_explained:
            return HttpResponse(http_status(error.code))
        return error_response(error)

    def _publish(self, outcome: _Outcome, *, duration_s: float) -> None:
        self._events.publish_request(
            RequestEnded(
                outcome.model_name,
                outcome.version,
                outcome.api,
                "rest",
                outcome.code,
                duration_s,
                outcome.run_s,
            )
        )

    async def _try_answer_api(self, request: HttpRequest, *, outcome: _Outcome) -> HttpResponse:
        if request.method == "OPTIONS":
            return _answer_options(request)
        if self._options.is_extended and is_listing(request.method, path=request.path):
            return answer_listing(self._models)
        is_lenient = self._options.is_url_lenient
        path = request.path if is_lenient else request.target
        route = find_route(request.method, path=path, is_lenient=is_lenient)
        if route is None:
            raise InvalidArgument(f"Malformed request: {request.method} {request.target}")
        outcome.model_name = route.spec.name
        answer_inference = self._verbs.get(route.verb)
        if answer_inference is not None:
            outcome.api = route.verb
            response, outcome.version, outcome.run_s = await answer_inference(
                self._inference, spec=route.spec, request=request
            )
            return response
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
        text = f"Unexpected path: {request.target}. Should be {page.path}"
        return HttpResponse(400, text.encode(), content_type="text/plain")
    body = await asyncio.get_running_loop().run_in_executor(None, page.render)
    return HttpResponse(200, body, content_type="text/plain")
