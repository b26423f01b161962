"""Runs the server around the toy behind the default listener, until SIGTERM.

Usage: toy_server.py GRPC_PORT REST_PORT
"""

import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from aspira.frontends.listeners.envoy import EnvoyServer, make_command
from aspira.frontends.listeners.options import ListenerOptions
from aspira.settings import ModelOptions, Settings, encode_settings

APPLICATION = "toy_application:application"
MODEL_NAME = "toy"


async def serve_toy(listener: ListenerOptions, *, directory: Path) -> None:
    """Serve version 1 of the model `toy`."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    base_path = directory / MODEL_NAME
    (base_path / "1").mkdir(parents=True)
    models = ModelOptions(name=MODEL_NAME, base_path=str(base_path))
    settings = encode_settings(Settings(models=models, listener=listener))
    command = make_command(
        listener, settings=settings, directory=directory, application=APPLICATION
    )
    server = await EnvoyServer.start(command, directory=directory)
    try:
        await server.wait_listening()
        await stopping.wait()
    finally:
        await server.stop()


def main() -> None:
    grpc_port, rest_port = map(int, sys.argv[1:])
    listener = ListenerOptions(host="127.0.0.1", grpc_port=grpc_port, rest_port=rest_port)
    with tempfile.TemporaryDirectory(prefix="aspira-toy-") as directory:
        asyncio.run(serve_toy(listener, directory=Path(directory)))


if __name__ == "__main__":
    main()
