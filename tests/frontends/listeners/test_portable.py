"""What grpc.aio is told by the portable listener's methods."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import Unavailable
from aspira.frontends.grpc.methods import StreamMethod, UnaryCall, UnaryMethod
from aspira.frontends.listeners.portable import _MethodTable
from aspira.service.drain import RequestGate

LATER = Unavailable("Not now", retry_after_s=1.5)


async def refuse(_: UnaryCall) -> Any:
    raise LATER


async def refuse_stream(_: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    yield StringValue()
    raise LATER


@pytest.mark.parametrize(
    "method", [UnaryMethod(StringValue, refuse), StreamMethod(StringValue, refuse_stream)]
)
def test_clients_are_told_when_to_try_again(method: UnaryMethod | StreamMethod) -> None:
    async def ask(channel: grpc.aio.Channel) -> None:
        if isinstance(method, UnaryMethod):
            await channel.unary_unary("/s/m")(b"")
        else:
            async for _ in channel.stream_stream("/s/m")(iter([b""])):
                pass

    async def scenario() -> None:
        server = grpc.aio.server()
        table = _MethodTable({"/s/m": method}, gate=RequestGate(), clock=SystemClock())
        server.add_generic_rpc_handlers((table,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await ask(channel)
        await server.stop(None)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(raised.value.trailing_metadata())["grpc-retry-pushback-ms"] == "1500"

    asyncio.run(scenario())
