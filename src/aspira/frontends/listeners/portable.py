"""A listener of well-known parts, uvicorn and grpc.aio: for debugging, and where Envoy cannot run.

REST and gRPC have a port each, in this process, both encrypted or neither.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, nullcontext
from typing import Any

import grpc
import uvicorn

from aspira.contracts.clock import Clock
from aspira.contracts.errors import ServingError
from aspira.frontends.asgi import Application
from aspira.frontends.grpc.methods import (
    MAX_MESSAGE_BYTES,
    Message,
    Methods,
    StreamMethod,
    UnaryMethod,
    call_stream,
    call_unary,
    read_message,
    retry_metadata,
    status_message,
)
from aspira.frontends.listeners.bounded_http import BoundedHttp
from aspira.frontends.listeners.channel_arguments import channel_options
from aspira.frontends.listeners.options import ListenerOptions, bind_port
from aspira.frontends.listeners.tls import Tls, make_ssl_context
from aspira.frontends.origin import TEXT, set_origin
from aspira.frontends.priority import PRIORITY_HEADER, parse_priority
from aspira.service.drain import RequestGate

_STATUS_BY_NUMBER = tuple(sorted(grpc.StatusCode, key=lambda status: int(status.value[0])))
_CLOSE_S = 5.0
_QUIET_S = 0.2
_BACKLOG = 128

AbortCall = Callable[[grpc.StatusCode, str], Awaitable[None]]


class PortableListener:
    """Two servers on the running loop."""

    def __init__(
        self,
        options: ListenerOptions,
        *,
        methods: Methods,
        rest: Application,
        gate: RequestGate,
        clock: Clock,
        tls: Tls | None = None,
    ) -> None:
        self._options = options
        self._grpc_server = _make_grpc_server(
            options, handler=_MethodTable(methods, gate=gate, clock=clock), tls=tls
        )
        self._rest_server = _make_rest_server(rest, tls=tls)
        self._rest_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the ports."""
        if self._options.rest_port:
            # Bound here: uvicorn would leave IPv4 out, and end the process if the port is taken.
            listening = bind_port(self._options.bind_host, port=self._options.rest_port)
            self._rest_task = asyncio.create_task(self._rest_server.serve(sockets=[listening]))
            while not self._rest_server.started and not self._rest_task.done():
                await asyncio.sleep(0.01)
        await self._grpc_server.start()

    async def stop(self) -> None:
        """Close them; what is still being answered is given a moment.

        grpc.aio cancels calls that come in while it stops. Until clients that keep calling have
        heard a refusal, which tells them to go elsewhere, it had better not.
        """
        await asyncio.sleep(_QUIET_S)
        await self._grpc_server.stop(_CLOSE_S)
        if self._rest_task is not None:
            self._rest_server.should_exit = True
            await asyncio.wait([self._rest_task], timeout=_CLOSE_S)


class _Uvicorn(uvicorn.Server):  # type: ignore[misc] # uvicorn is not followed
    """Signals are ours, not uvicorn's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _make_rest_server(application: Application, *, tls: Tls | None) -> uvicorn.Server:
    return _Uvicorn(
        uvicorn.Config(
            application,
            http=BoundedHttp,
            # So many are accepted before the first is counted: fewer than there are spare files.
            backlog=_BACKLOG,
            # Nothing here speaks it, and uvicorn would try as soon as a package for it is there.
            ws="none",
            lifespan="off",
            # Its own handlers would write lines of another form. Its warnings are about what
            # clients send, which they are told and nobody else.
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(_CLOSE_S),
            ssl_context_factory=(lambda _config, _default: make_ssl_context(tls)) if tls else None,
        )
    )


def _make_grpc_server(
    options: ListenerOptions, *, handler: grpc.GenericRpcHandler, tls: Tls | None
) -> Any:
    channel_arguments = {
        "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
        "grpc.max_send_message_length": -1,
        "grpc.so_reuseport": 0,
        **channel_options(options.grpc_channel_arguments),
    }
    server = grpc.aio.server(options=tuple(channel_arguments.items()))
    server.add_generic_rpc_handlers((handler,))
    for address in _grpc_addresses(options):
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, _make_credentials(tls))
    return server


def _grpc_addresses(options: ListenerOptions) -> Iterator[str]:
    if options.grpc_port:
        host = f"[{options.bind_host}]" if ":" in options.bind_host else options.bind_host
        yield f"{host}:{options.grpc_port}"
    if options.grpc_socket_path:
        yield f"unix:{options.grpc_socket_path}"


def _make_credentials(tls: Tls) -> Any:
    key, cert, client_ca = (
        text.encode() for text in (tls.server_key, tls.server_cert, tls.client_ca)
    )
    return grpc.ssl_server_credentials(
        [(key, cert)], root_certificates=client_ca or None, require_client_auth=bool(client_ca)
    )


class _MethodTable(grpc.GenericRpcHandler):
    """Our methods as grpc.aio wants them."""

    def __init__(self, methods: Methods, *, gate: RequestGate, clock: Clock) -> None:
        self._gate = gate
        self._clock = clock
        self._handlers = {path: self._make_handler(method) for path, method in methods.items()}

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)

    def _make_handler(self, method: UnaryMethod | StreamMethod) -> Any:
        if isinstance(method, UnaryMethod):
            return grpc.unary_unary_rpc_method_handler(self._unary_behavior(method))
        return grpc.stream_stream_rpc_method_handler(_stream_behavior(method))

    def _unary_behavior(self, method: UnaryMethod) -> Callable[..., Awaitable[bytes]]:
        async def answer(payload: bytes, context: Any) -> bytes:
            set_origin(_headers_of(context), operation=TEXT)
            remaining_s = context.time_remaining()
            deadline = None if remaining_s is None else self._clock.now() + remaining_s
            try:
                with nullcontext() if method.is_question else self._gate:
                    return await call_unary(
                        method, payload=payload, deadline=deadline, priority=_priority_of(context)
                    )
            except ServingError as error:
                await _abort(context, error=error)
                raise

        return answer


def _priority_of(context: Any) -> int:
    for name, value in context.invocation_metadata():
        if name == PRIORITY_HEADER.decode():
            return parse_priority(value.encode())
    return 0


def _headers_of(context: Any) -> Iterator[tuple[bytes, bytes]]:
    for name, value in context.invocation_metadata():
        yield name.encode(), value.encode() if isinstance(value, str) else value


def _stream_behavior(method: StreamMethod) -> Callable[..., AsyncIterator[bytes]]:
    async def messages(payloads: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for payload in payloads:
            yield await read_message(method.request_class, payload=payload)

    async def answer(payloads: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        set_origin(_headers_of(context), operation=TEXT)
        try:
            async with aclosing(call_stream(method, requests=messages(payloads))) as responses:
                async for response in responses:
                    yield response.SerializeToString()
        except ServingError as error:
            await _abort(context, error=error)

    return answer


async def _abort(context: Any, *, error: ServingError) -> None:
    await context.abort(
        _STATUS_BY_NUMBER[error.code],
        status_message(error),
        trailing_metadata=retry_metadata(error),
    )
