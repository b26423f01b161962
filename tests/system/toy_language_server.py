"""Runs `toy_language_application` behind the default listener, until SIGTERM.

Usage: toy_language_server.py GRPC_PORT REST_PORT CONFIG_FILE
"""

import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from aspira.frontends.listeners.envoy import EnvoyServer, make_command
from aspira.frontends.listeners.options import ListenerOptions
from aspira.lifecycle.options import LifecycleOptions
from aspira.llm.serving_options import LanguageModelOptions
from aspira.settings import ModelOptions, Settings, encode_settings

APPLICATION = "system.toy_language_application:application"
POLL_S = 0.1
KEEP_ALIVE_S = 600.0
"""No comment brings an answer's head: it has to come by itself, once the request is queued."""


async def serve(settings: Settings, *, directory: Path) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    command = make_command(
        settings.listener,
        settings=encode_settings(settings),
        directory=directory,
        application=APPLICATION,
    )
    server = await EnvoyServer.start(command, directory=directory)
    try:
        await server.wait_listening()
        print("Exporting HTTP/REST API", file=sys.stderr, flush=True)
        await stopping.wait()
    finally:
        await server.stop()


def main() -> None:
    grpc_port, rest_port, config_file = sys.argv[1:]
    settings = Settings(
        listener=ListenerOptions(
            host="127.0.0.1", grpc_port=int(grpc_port), rest_port=int(rest_port)
        ),
        models=ModelOptions(config_file=config_file),
        lifecycle=LifecycleOptions(poll_interval_s=POLL_S),
        language_models=LanguageModelOptions(keep_alive_s=KEEP_ALIVE_S),
    )
    with tempfile.TemporaryDirectory(prefix="aspira-toy-") as directory:
        asyncio.run(serve(settings, directory=Path(directory)))


if __name__ == "__main__":
    main()
