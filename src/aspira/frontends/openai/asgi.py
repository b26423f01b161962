"""Carries the endpoints over ASGI: reads a body, watches for departure, answers every error."""

import asyncio
import logging
import re
import secrets
from functools import partial

from aspira.contracts.clock import Clock
from aspira.contracts.errors import (
    Cancelled,
    Code,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    ServingError,
)
from aspira.contracts.events import EventBus, RequestEnded
from aspira.frontends.asgi import Receive, Scope, Send, read_body
from aspira.frontends.departures import DepartureWatch
from aspira.frontends.offload import on_thread
from aspira.frontends.openai.endpoints import ROUTES, Call, Endpoints, Outcome, Route
from aspira.frontends.openai.errors import BodyTooLarge, MethodNotAllowed
from aspira.frontends.openai.fields import Fields, parse_fields
from aspira.frontends.openai.responder import RawHeaders, Responder
from aspira.service.drain import RequestGate

_MAX_BODY_BYTES = 32 << 20
_LARGE_BODY_BYTES = 64 << 10
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

_CORS_HEADERS: RawHeaders = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type, Authorization"),
)

_logger = logging.getLogger(__name__)


class OpenaiApplication:
    """An ASGI application for the paths of `ROUTES` alone."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        gate: RequestGate,
        events: EventBus,
        clock: Clock,
        is_cors_enabled: bool,
    ) -> None:
        self._endpoints = endpoints
        self._gate = gate
        self._events = events
        self._clock = clock
        self._headers = _CORS_HEADERS if is_cors_enabled else ()
        self._departures = DepartureWatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = ROUTES[scope["path"]]
        arrival, outcome, code = self._clock.now(), Outcome(), Code.OK
        responder = Responder(send, request_id=_request_id(scope), headers=self._headers)
        try:
            if scope["method"] == "OPTIONS":
                await responder.answer(b"")
                return
            with self._gate:
                fields = await _read_fields(scope, receive=receive)
                call = Call(fields, arrival, responder, outcome)
                await self._answer_watched(call, route=route, receive=receive)
        except Cancelled:
            code = Code.CANCELLED
        except ServingError as error:
            code = error.code
            await responder.fail(error)
        except (asyncio.CancelledError, OSError):
            code = Code.CANCELLED
            raise
        except Exception:
            _logger.exception("A request met a bug: %s", scope["path"])
            code = Code.INTERNAL
            await responder.fail(Internal("The server met a bug; its log has the details"))
        finally:
            self._publish(route, outcome=outcome, code=code, arrival=arrival)

    async def _answer_watched(self, call: Call, *, route: Route, receive: Receive) -> None:
        """Until the answer is sent, or the client has left, which ends its work."""
        waiting = self._departures.add(receive)
        try:
            await route.answer(self._endpoints, call)
        finally:
            self._departures.remove(waiting)

    def _publish(self, route: Route, *, outcome: Outcome, code: Code, arrival: float) -> None:
        self._events.publish_request(
            RequestEnded(
                outcome.model_name,
                outcome.version,
                route.api,
                "openai",
                code,
                self._clock.now() - arrival,
            )
        )


async def _read_fields(scope: Scope, *, receive: Receive) -> Fields:
    if scope["method"] != "POST":
        raise MethodNotAllowed(f"{scope['path']} is asked by POST, not by {scope['method']}.")
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise InvalidArgument("A body that is compressed is not taken here; send it as it is.")
    length = headers.get(b"content-length", b"")
    try:
        body = await read_body(
            receive,
            max_bytes=_MAX_BODY_BYTES,
            content_length=int(length) if length.isdigit() else None,
        )
    except ResourceExhausted as error:
        raise BodyTooLarge(error.message) from None
    if len(body) < _LARGE_BODY_BYTES:
        return parse_fields(body)
    return await on_thread(partial(parse_fields, body))


def _request_id(scope: Scope) -> str:
    """The client's own, so that its logs and ours speak of the same; else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return str(given)
    return secrets.token_hex(12)
