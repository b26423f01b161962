"""The whole server around a model that costs nothing, for measuring the layers alone."""

from pathlib import Path

from aspira.app import Server
from aspira.asgi import EnvoyChild
from aspira.contracts.events import EventBus
from aspira.settings import Settings
from aspira.testing.toy_servable import ToyLoader


def make_toy_loader(path: Path, *, settings: Settings, events: EventBus) -> ToyLoader:  # noqa: ARG001
    """A toy, whatever lies in the directory."""
    return ToyLoader()


async def make_toy_server(settings: Settings) -> Server:
    return Server(settings, make_runtime_loader=make_toy_loader)


application = EnvoyChild(make_toy_server)
