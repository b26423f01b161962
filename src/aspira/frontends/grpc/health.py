"""`grpc.health.v1.Health`, telling the truth: a name is SERVING when what it names can answer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

from aspira.contracts.errors import Internal, InvalidArgument, NotFound, Unavailable, shorten
from aspira.frontends.grpc.methods import Method, StreamMethod, UnaryCall, UnaryMethod
from aspira.service.drain import RequestGate

_SERVICE = "/grpc.health.v1.Health"
_WATCH_INTERVAL_S = 0.25

# Message classes are generated, hence Any.
Message = Any

CheckHealth = Callable[[str], bool | None]
"""Whether a service or model can answer; None for a name nobody knows. "" is the server."""


class HealthServicer:
    """Answers for the server (""), for its services by name, and for each model by name."""

    def __init__(self, check_health: CheckHealth, *, gate: RequestGate) -> None:
        from grpc_health.v1 import health_pb2

        self._check_health = check_health
        self._gate = gate
        self._classes = health_pb2
        # What the watches of one interval share, by name, and when the interval ends.
        self._watched: dict[str, int] = {}
        self._watched_until = 0.0

    def methods(self) -> dict[str, Method]:
        """Its methods by path."""
        request_class = self._classes.HealthCheckRequest
        return {
            f"{_SERVICE}/Check": UnaryMethod(request_class, self.check, is_question=True),
            f"{_SERVICE}/Watch": StreamMethod(request_class, self.watch),
        }

    async def check(self, call: UnaryCall) -> Message:
        """The Check method."""
        status = self._status(call.message.service)
        if status == self._classes.HealthCheckResponse.SERVICE_UNKNOWN:
            raise NotFound(f"Unknown service or model: {shorten(call.message.service)}")
        return self._classes.HealthCheckResponse(status=status)

    async def watch(self, requests: AsyncIterator[Message]) -> AsyncGenerator[Message, None]:
        """The Watch method: the status now, then each change, until the server shuts down."""
        request = await anext(requests, None)
        if request is None:
            raise Internal("The request stream ended without a message")
        async for _ in requests:
            raise InvalidArgument("Watch takes a single message")
        last = None
        while self._gate.is_open:
            status = self._watched_status(request.service)
            if status != last:
                yield self._classes.HealthCheckResponse(status=status)
                last = status
            await asyncio.sleep(_WATCH_INTERVAL_S)
        status = self._status(request.service)
        if status != last:
            yield self._classes.HealthCheckResponse(status=status)
        raise Unavailable("The server is shutting down; watch another replica")

    def _watched_status(self, service: str) -> int:
        """The status as of this interval, worked out once for however many watch it."""
        now = asyncio.get_running_loop().time()
        if now >= self._watched_until:
            self._watched.clear()
            self._watched_until = now + _WATCH_INTERVAL_S
        status = self._watched.get(service)
        if status is None:
            status = self._watched[service] = self._status(service)
        return status

    def _status(self, service: str) -> int:
        is_healthy = self._check_health(service)
        statuses = self._classes.HealthCheckResponse
        if is_healthy is None:
            return int(statuses.SERVICE_UNKNOWN)
        return int(statuses.SERVING if is_healthy else statuses.NOT_SERVING)
