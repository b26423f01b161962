"""Servers over directories of toy versions: version N of a model answers y = x / 2 + N."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from asgi_exchange import Answer, Request, exchange
from aspira.app import Server
from aspira.batching.servable import BatchedServable
from aspira.contracts.errors import DataLoss, OutOfRange
from aspira.contracts.events import EventBus
from aspira.contracts.tensors import Tensors
from aspira.lifecycle.manager import Manager
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.version_state import VersionState
from aspira.settings import ModelOptions, Settings
from aspira.testing.toy_servable import ToyServable
from aspira.version_loaders import RuntimeLoaders

_LOAD_ERROR = "load_error.txt"
_RUN_ERROR = "run_error.txt"


def write_version(
    base_path: Path, *, version: int, load_error: str = "", run_error: str = ""
) -> Path:
    """A version directory, whose model may be told to fail with DataLoss or OutOfRange."""
    path = base_path / str(version)
    path.mkdir(parents=True)
    (path / _LOAD_ERROR).write_text(load_error)
    (path / _RUN_ERROR).write_text(run_error)
    return path


class _DirectoryServable(ToyServable):
    def __init__(self, path: Path) -> None:
        super().__init__(offset=float(path.name))
        self._run_error = (path / _RUN_ERROR).read_text()

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        if self._run_error:
            raise OutOfRange(self._run_error)
        return super().run(signature_name, inputs=inputs, outputs=outputs)


class DirectoryLoader:
    """Loads what `write_version` wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> ToyServable:
        if text := (self._path / _LOAD_ERROR).read_text():
            raise DataLoss(text)
        return _DirectoryServable(self._path)


def make_toy_loader(path: Path, *, settings: Settings, events: EventBus) -> DirectoryLoader:
    return DirectoryLoader(path)


def single_model(base_path: Path, *, name: str = "m") -> Settings:
    """Settings of a server of one model that looks at its directory once and does not retry."""
    return replace(
        Settings(),
        models=ModelOptions(name=name, base_path=str(base_path)),
        lifecycle=LifecycleOptions(max_num_load_retries=0, poll_interval_s=0),
    )


def listed_models(config_file: Path, *, entries: Iterable[str]) -> Settings:
    """As `single_model`, with the models of a config file, which is written here."""
    config_file.write_text(config_list(*entries))
    return replace(single_model(config_file), models=ModelOptions(config_file=str(config_file)))


def config_entry(base_path: Path, *, fields: str = "") -> str:
    """One entry of a ModelServerConfig, named as its directory."""
    return (
        f"config {{ name: '{base_path.name}' base_path: '{base_path}' "
        f"model_platform: 'tensorflow' {fields} }}"
    )


def config_list(*entries: str) -> str:
    """A ModelServerConfig as text."""
    return f"model_config_list {{ {' '.join(entries)} }}"


@asynccontextmanager
async def running(
    settings: Settings, *, make_runtime_loader: RuntimeLoaders = make_toy_loader
) -> AsyncIterator[Server]:
    """A started server with every version loaded that can be, drained at the end."""
    server = Server(settings, make_runtime_loader=make_runtime_loader)
    await server.start()
    await _wait_loaded(server._manager)
    try:
        yield server
    finally:
        assert await server.drain(grace_s=30)


async def _wait_loaded(manager: Manager[BatchedServable]) -> None:
    """A server starts to serve a model with its first version; tests are about all of them."""
    unsettled = {VersionState.NEW, VersionState.LOADING}
    await manager.wait_until(
        lambda: (
            not any(
                status.state in unsettled
                for name in manager.model_names()
                for status in manager.statuses(name)
            )
        )
    )


def ask(
    settings: Settings, *requests: Request, make_runtime_loader: RuntimeLoaders = make_toy_loader
) -> list[Answer]:
    """The answers of a server that runs as long as it takes."""

    async def run() -> list[Answer]:
        async with running(settings, make_runtime_loader=make_runtime_loader) as server:
            return [await exchange(server.application, request=request) for request in requests]

    return asyncio.run(run())
