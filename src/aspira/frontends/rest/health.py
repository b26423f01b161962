"""Liveness and readiness over HTTP, with reasons a person with a pager can use."""

from collections.abc import Mapping

import orjson

from aspira.frontends.rest.messages import HttpResponse
from aspira.service.drain import RequestGate
from aspira.service.models import ModelsService

LIVENESS_PATH = "/healthz"
READINESS_PATH = "/readyz"


def answer_alive() -> HttpResponse:
    """The process answers; that is all it says."""
    return HttpResponse(200, b'{"status": "alive"}\n')


def answer_liveness(models: ModelsService) -> HttpResponse:
    """200, or 503 once a model is lost that only a new process can bring back.

    A model that is busy, refuses, or failed to load is none: a restart would not help it.
    """
    lost = models.lost()
    if not lost:
        return answer_alive()
    return _told(503, reasons={"status": "to be restarted", "lost": lost})


def answer_readiness(
    models: ModelsService, *, gate: RequestGate, is_started: bool = True
) -> HttpResponse:
    """200 when models can answer and the server is not shutting down, else 503.

    Models that cannot answer are named with the reason either way. Until the server `is_started`
    its ports are closed, so it is not ready whatever has been loaded.
    """
    unavailable = {str(name): reason for name, reason in models.unavailable().items()}
    if not gate.is_open:
        return _told(503, reasons={"status": "shutting down"})
    if not is_started:
        return _told(503, reasons={"status": "starting", "unavailable": unavailable})
    if not unavailable:
        return HttpResponse(200, b'{"status": "ready"}\n')
    if models.can_serve():
        return _told(200, reasons={"status": "ready", "unavailable": unavailable})
    return _told(503, reasons={"status": "not ready", "unavailable": unavailable})


def answer_starting() -> HttpResponse:
    """Not ready, and too early to say which models are not."""
    return _told(503, reasons={"status": "starting"})


def _told(status: int, *, reasons: Mapping[str, object]) -> HttpResponse:
    return HttpResponse(status, orjson.dumps(reasons, option=orjson.OPT_INDENT_2) + b"\n")
