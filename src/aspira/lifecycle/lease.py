"""A lease keeps a version loaded while a request, or a whole stream, uses it."""

from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self

from aspira.contracts.identity import ServableId
from aspira.contracts.servable import LoadedT
from aspira.lifecycle.version_record import VersionRecord


class Lease(Generic[LoadedT]):
    """Taken from the manager, released exactly once (more is harmless). Event loop only."""

    __slots__ = ("_on_last_release", "_record", "servable")

    def __init__(
        self,
        record: VersionRecord[LoadedT],
        *,
        on_last_release: Callable[[VersionRecord[LoadedT]], None],
    ) -> None:
        assert record.servable is not None
        record.num_leases += 1
        self.servable = record.servable
        self._record: VersionRecord[LoadedT] | None = record
        self._on_last_release = on_last_release

    @property
    def servable_id(self) -> ServableId:
        """The version that is leased; not to be asked after the release."""
        assert self._record is not None
        return self._record.servable_id

    def release(self) -> None:
        """Give it back; the last one of a draining version lets it unload."""
        record, self._record = self._record, None
        if record is not None:
            record.num_leases -= 1
            if record.num_leases == 0:
                self._on_last_release(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
