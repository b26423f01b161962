"""Watches the base path of each model for numeric version directories.

Each model is listed on its own: a path that is missing or cannot be read is reported, once per
change, and touches neither the model's loaded versions nor any other model.
"""

import asyncio
import logging
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from aspira.contracts.events import EventBus, SourceProblem
from aspira.contracts.identity import ModelName
from aspira.lifecycle.source import AspireCallback, Aspired, VersionPaths, VersionStamps
from aspira.lifecycle.version_choice import (
    Latest,
    Specific,
    VersionPolicy,
    choose_versions,
    parse_versions,
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MonitoredModel:
    """A model to watch: its versions are the numeric children of `base_path`."""

    name: ModelName
    base_path: str
    policy: VersionPolicy = field(default_factory=Latest)


@dataclass(frozen=True, slots=True)
class Listing:
    """What one look at a base path gave. `versions` is None where it could not be read.

    `problem` is empty when all is well.
    """

    versions: VersionPaths | None
    problem: str = ""
    stamps: VersionStamps = field(default_factory=dict)


class FilesystemSource:
    """Lists all base paths at an interval, on a thread. Methods: event loop only."""

    def __init__(self, aspire: AspireCallback, *, events: EventBus, poll_interval_s: float) -> None:
        self._aspire = aspire
        self._events = events
        self._poll_interval_s = poll_interval_s
        self._models: dict[ModelName, MonitoredModel] = {}
        self._listings: dict[ModelName, Listing] = {}
        self._scanning = asyncio.Lock()
        self._poll_task: asyncio.Task[None] | None = None
        # Of its own: the loop's pool may be busy with requests for long.
        self._thread = ThreadPoolExecutor(1, "aspira-list")

    async def start(self) -> None:
        """Look once, then keep looking if the interval is positive."""
        await self.scan()
        if self._poll_interval_s > 0:
            self._poll_task = asyncio.get_running_loop().create_task(self._poll())

    async def stop(self) -> None:
        """End the polling. What is loaded stays loaded."""
        task, self._poll_task = self._poll_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._thread.shutdown(wait=False)

    def set_models(self, models: Iterable[MonitoredModel]) -> None:
        """Replace the watched models. Those left out are unloaded; call `scan` to see new ones."""
        wanted = {model.name: model for model in models}
        removed = self._models.keys() - wanted.keys()
        self._models = wanted
        for name in removed:
            before = self._listings.pop(name, None)
            if before is not None and before.problem:
                self._events.publish(SourceProblem(name, ""))
            self._aspire(Aspired(name, {}))

    def listing(self, name: ModelName) -> Listing | None:
        """The last look at a model's base path; None before the first, or if it is not watched."""
        return self._listings.get(name)

    async def scan(self) -> None:
        """List every base path once and aspire what was found."""
        async with self._scanning:
            models = list(self._models.values())
            loop = asyncio.get_running_loop()
            listings = await loop.run_in_executor(
                self._thread, lambda: [list_model(model) for model in models]
            )
            for model, listing in zip(models, listings, strict=True):
                if self._models.get(model.name) is model:
                    self._take(listing, model=model)

    def _take(self, listing: Listing, *, model: MonitoredModel) -> None:
        before = self._listings.get(model.name)
        self._listings[model.name] = listing
        if listing.problem != (before.problem if before else ""):
            self._events.publish(SourceProblem(model.name, listing.problem))
        if listing.versions is None:
            return
        if before is None or (before.versions, before.stamps) != (listing.versions, listing.stamps):
            self._aspire(Aspired(model.name, listing.versions, listing.stamps))

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_interval_s)
            try:
                await self.scan()
            except Exception:  # a bug met once must not end the discovery of versions
                _logger.exception("Looking for versions met a bug")


def list_model(model: MonitoredModel) -> Listing:
    """One look at a base path. Blocks on the file system; raises nothing."""
    scheme, separator, _ = model.base_path.partition("://")
    if separator and scheme != "file":
        return _problem(
            f"File system scheme '{scheme}' not implemented (file: '{model.base_path}')",
        )
    base_path = Path(model.base_path.removeprefix("file://"))
    try:
        names = os.listdir(base_path)  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return _problem(
            f"Could not find base path {model.base_path} for servable {model.name}"
            f" with error NOT_FOUND: {model.base_path} not found",
        )
    except OSError as error:
        return _problem(f"{model.base_path}; {error.strerror}")
    except ValueError as error:
        return _problem(f"{model.base_path!r} is no path: {error}")
    return _choose(model, base_path=base_path, names=names)


def _choose(model: MonitoredModel, *, base_path: Path, names: list[str]) -> Listing:
    available = parse_versions(names)
    chosen = choose_versions(available, policy=model.policy)
    versions = {version: base_path / name for version, name in chosen.items()}
    if not available:
        return Listing(
            versions,
            f"No versions of servable {model.name} found under base path {model.base_path}. "
            "Did you forget to name your leaf directory as a number (eg. '/1/')?",
        )
    stamps = {version: _stamp(path) for version, path in versions.items()}
    return Listing(versions, _missing_versions(model, found=versions), stamps)


def _stamp(directory: Path) -> int:
    """Another number once a file of the version, or of its variables, comes, goes or changes."""
    files: list[tuple[str, int, int]] = []
    for folder in (directory, directory / "variables"):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                stat = entry.stat()
                files.append((entry.path, stat.st_mtime_ns, stat.st_size))
    return hash(tuple(sorted(files)))


def _missing_versions(model: MonitoredModel, *, found: VersionPaths) -> str:
    if not isinstance(model.policy, Specific):
        return ""
    if not model.policy.versions:
        return f"No specific versions requested for servable {model.name}."
    missing = sorted(set(model.policy.versions) - found.keys())
    return "; ".join(
        f"Version {version} of servable {model.name}, which was requested to be served as a"
        " 'specific' version in the servable's version policy, was not found in the file system"
        for version in missing
    )


def _problem(reason: str) -> Listing:
    return Listing(
        None, f"FileSystemStoragePathSource encountered a filesystem access error: {reason}"
    )
