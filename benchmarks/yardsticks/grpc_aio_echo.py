"""The least a gRPC server in Python can do with grpc.aio: bytes in, the same bytes out.

Usage: grpc_aio_echo.py PORT
"""

import asyncio
import sys

import grpc


async def echo(message: bytes, context: grpc.aio.ServicerContext) -> bytes:  # noqa: ARG001
    """Without serializers, a handler is given the bytes and returns bytes."""
    return message


async def serve(port: int) -> None:
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("benchmark.Echo", {"Echo": handler})]
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
