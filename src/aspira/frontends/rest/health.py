"""Liveness and readiness over HTTP, with reasons a person with a pager can use."""

import orjson

from aspira.frontends.rest.messages import HttpResponse
from aspira.service.drain import RequestGate
from aspira.service.models import ModelsService

LIVENESS_PATH = "/healthz"
READINESS_PATH = "/readyz"


def answer_liveness() -> HttpResponse:
    """The process answers; that is all it says."""
    return HttpResponse(200, b'{"status": "alive"}\n')


def answer_readiness(models: ModelsService, *, gate: RequestGate) -> HttpResponse:
    """200 when every configured model can answer and the server is not shutting down, else 503."""
    unavailable = {str(name): reason for name, reason in models.unavailable().items()}
    if not gate.is_open:
        return _not_ready({"status": "shutting down"})
    if unavailable:
        return _not_ready({"status": "not ready", "unavailable": unavailable})
    return HttpResponse(200, b'{"status": "ready"}\n')


def _not_ready(reasons: dict[str, object]) -> HttpResponse:
    return HttpResponse(503, orjson.dumps(reasons, option=orjson.OPT_INDENT_2) + b"\n")
