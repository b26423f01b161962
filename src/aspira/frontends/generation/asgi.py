"""Carries endpoints that may stream over ASGI: reads a body, watches for departure, answers errors.

What differs from API to API, paths and the form of errors, is an `HttpApi`.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aspira.contracts.clock import Clock
from aspira.contracts.errors import (
    Cancelled,
    Internal,
    InvalidArgument,
    ResourceExhausted,
    ServingError,
    shorten,
)
from aspira.contracts.events import EventBus
from aspira.frontends.asgi import Receive, Scope, Send, read_body, without_bodies
from aspira.frontends.counting import Outcome, RequestCounter
from aspira.frontends.departures import DepartureWatch
from aspira.frontends.generation.errors import BodyTooLarge, EncodeError, MethodNotAllowed
from aspira.frontends.generation.responder import RawHeaders, Responder
from aspira.frontends.origin import CHAT, TEXT, set_origin
from aspira.service.drain import RequestGate

CHAT_API = "chat_completions"
"""What metrics call the API whose requests are chats."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_CORS_HEADERS: RawHeaders = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type, Authorization"),
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request, to be answered by its endpoint. The names of `headers` are in lower case."""

    body: bytes
    headers: Mapping[bytes, bytes]
    arrival: float
    responder: Responder
    outcome: Outcome


class Endpoint(NamedTuple):
    """What answers a path, and how it is asked.

    `answer` raises ServingError, before or amid its answer. `api` is what metrics call it; a
    question about the server or its models has none: it is not counted, and is answered even while
    the server shuts down. Where GET is asked, so is HEAD, as load balancers do.
    """

    method: str
    answer: Callable[[HttpCall], Awaitable[None]]
    api: str = ""


@dataclass(frozen=True, slots=True)
class HttpApi:
    """An API over HTTP.

    `find_endpoint` raises NotFound for a path that is none. `last_event` is the data of the event
    after which there is none; None where the end of the body says so.
    """

    name: str
    find_endpoint: Callable[[Scope], Endpoint]
    encode_error: EncodeError
    max_body_bytes: int
    last_event: bytes | None = None


class HttpApplication:
    """An ASGI application for the paths of one API alone."""

    def __init__(
        self, api: HttpApi, *, gate: RequestGate, events: EventBus, clock: Clock, has_cors: bool
    ) -> None:
        self._api = api
        self._gate = gate
        self._counter = RequestCounter(api.name, events=events, clock=clock)
        self._clock = clock
        self._headers = _CORS_HEADERS if has_cors else ()
        self._departures = DepartureWatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(
            without_bodies(send) if scope["method"] == "HEAD" else send,
            request_id=_request_id(scope),
            headers=self._headers,
            encode_error=self._api.encode_error,
            last_event=self._api.last_event,
        )
        if scope["method"] == "OPTIONS":
            await responder.answer(b"")
            return
        try:
            endpoint = self._api.find_endpoint(scope)
        except ServingError as error:
            await responder.fail(error)
            return
        await self._answer(endpoint, scope=scope, receive=receive, responder=responder)

    async def _answer(
        self, endpoint: Endpoint, *, scope: Scope, receive: Receive, responder: Responder
    ) -> None:
        try:
            if endpoint.api:
                with self._counter.count(endpoint.api) as outcome, self._gate:
                    await self._work(
                        endpoint, scope=scope, receive=receive, responder=responder, outcome=outcome
                    )
            else:
                await self._work(
                    endpoint, scope=scope, receive=receive, responder=responder, outcome=Outcome()
                )
        except Cancelled:
            return
        except ServingError as error:
            await responder.fail(error)
        except (asyncio.CancelledError, OSError):
            raise
        except Exception:
            _logger.exception("A request met a bug: %s", scope["path"])
            await responder.fail(Internal("The server met a bug; its log has the details"))

    async def _work(
        self,
        endpoint: Endpoint,
        *,
        scope: Scope,
        receive: Receive,
        responder: Responder,
        outcome: Outcome,
    ) -> None:
        """Until the answer is sent, or the client has left, which ends its work."""
        arrival = self._clock.now()
        body = await self._read_body(endpoint, scope=scope, receive=receive)
        set_origin(
            scope["headers"],
            operation=CHAT if endpoint.api == CHAT_API else TEXT,
            request_id=responder.request_id,
        )
        call = HttpCall(body, dict(scope["headers"]), arrival, responder, outcome)
        waiting = self._departures.add(receive)
        try:
            await endpoint.answer(call)
        finally:
            self._departures.remove(waiting)

    async def _read_body(self, endpoint: Endpoint, *, scope: Scope, receive: Receive) -> bytes:
        allowed = ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)
        if scope["method"] not in allowed:
            raise MethodNotAllowed(
                f"{shorten(scope['path'])} is asked by {endpoint.method}, "
                f"not by {scope['method']}.",
                allowed=", ".join(allowed),
            )
        headers = dict(scope["headers"])
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise InvalidArgument("A body that is compressed is not taken here; send it as it is.")
        length = headers.get(b"content-length", b"")
        try:
            return await read_body(
                receive,
                max_bytes=self._api.max_body_bytes,
                content_length=int(length) if length.isdigit() else None,
            )
        except ResourceExhausted as error:
            raise BodyTooLarge(error.message) from None


def _request_id(scope: Scope) -> str:
    """The client's own, so that its logs and ours speak of the same; else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return str(given)
    return secrets.token_hex(12)
