"""The manager's books: one record per life of a version, one page per model."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Generic

from aspira.contracts.errors import ServingError
from aspira.contracts.identity import ServableId, Version
from aspira.contracts.servable import LoadedT
from aspira.lifecycle.source import Aspired
from aspira.lifecycle.transition_policy import VersionSnapshot
from aspira.lifecycle.version_state import VersionState


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """What the manager tells of a version. While loading, `error` is that of the last try."""

    version: Version
    state: VersionState
    error: ServingError | None

    @property
    def is_coming(self) -> bool:
        """Whether it may be ready soon."""
        return self.state in {VersionState.NEW, VersionState.LOADING}


@dataclass(slots=True, eq=False)
class VersionRecord(Generic[LoadedT]):
    """One life of a version. Touched on the event loop only."""

    servable_id: ServableId
    path: Path
    state: VersionState = VersionState.NEW
    is_aspired: bool = True
    error: ServingError | None = None
    servable: LoadedT | None = None
    num_leases: int = 0
    stamp: int | None = None
    told_state: VersionState | None = None
    is_retired: bool = False
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> VersionStatus:
        return VersionStatus(self.servable_id.version, self.state, self.error)

    @property
    def snapshot(self) -> VersionSnapshot:
        return VersionSnapshot(self.servable_id.version, self.state, self.is_aspired)

    @property
    def is_leaving(self) -> bool:
        """Whether it is alive though nobody wants it any longer."""
        return not self.is_aspired and not self.state.is_final

    @property
    def is_over(self) -> bool:
        """Whether it has ended and nobody wants it."""
        return self.state.is_final and not self.is_aspired

    def is_elsewhere(self, path: Path) -> bool:
        """Whether `path` is in another base path; a directory renamed within one is the same."""
        return self.path.parent != path.parent

    def unaspire(self) -> None:
        """Nobody wants it any longer: a retry that waits gives up."""
        self.is_aspired = False
        self.woken.set()

    def restamp(self, stamp: int | None) -> None:
        """Its files are known to be those of `stamp`: a retry that waits need not wait longer."""
        if stamp != self.stamp:
            self.stamp = stamp
            self.woken.set()

    def is_worth_retrying(self, stamp: int | None) -> bool:
        """Whether it failed, and its files have changed since."""
        return self.state is VersionState.FAILED and stamp != self.stamp


@dataclass(slots=True, eq=False)
class ModelRecord(Generic[LoadedT]):
    """All versions of a model that were ever managed, newest life only, and what can serve now.

    `replaced` are older lives that have not ended: the version is loaded from elsewhere by now, or
    about to be, and until it is ready the older life serves.
    """

    versions: dict[Version, VersionRecord[LoadedT]] = field(default_factory=dict)
    replaced: list[VersionRecord[LoadedT]] = field(default_factory=list)
    ready: dict[Version, VersionRecord[LoadedT]] = field(default_factory=dict)
    newest_ready: VersionRecord[LoadedT] | None = None
    pending: Aspired | None = None

    def publish(self, record: VersionRecord[LoadedT]) -> None:
        self.ready[record.servable_id.version] = record
        self._choose_newest()

    def withdraw(self, record: VersionRecord[LoadedT]) -> None:
        if self.ready.get(record.servable_id.version) is record:
            del self.ready[record.servable_id.version]
        self._choose_newest()

    def status(self, version: Version) -> VersionStatus:
        """Of a version's newest life; while an older one serves in its place, it is ready."""
        status = self.versions[version].status
        return replace(status, state=VersionState.READY) if version in self.ready else status

    def spare(self, version: Version) -> VersionRecord[LoadedT]:
        """The life of a version that is ready and not wanted."""
        return next(
            record
            for record in self._lives()
            if record.servable_id.version == version
            and record.state is VersionState.READY
            and not record.is_aspired
        )

    def snapshots(self) -> list[VersionSnapshot]:
        """What the policy decides on: everything alive, and failures that are still wanted."""
        return [record.snapshot for record in self._lives() if not record.is_over]

    def is_idle(self) -> bool:
        return self.pending is None and all(record.state.is_final for record in self._lives())

    def _lives(self) -> Iterator[VersionRecord[LoadedT]]:
        return chain(self.replaced, self.versions.values())

    def _choose_newest(self) -> None:
        self.newest_ready = self.ready[max(self.ready)] if self.ready else None
