"""A lease keeps a version loaded while a request, or a whole stream, uses it."""

from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self

from aspira.contracts.identity import ServableId
from aspira.contracts.servable import LoadedT


class Lease(Generic[LoadedT]):
    """Taken from the manager, released exactly once (more is harmless). Event loop only."""

    __slots__ = ("_on_release", "servable", "servable_id")

    def __init__(
        self, servable: LoadedT, *, servable_id: ServableId, on_release: Callable[[], None]
    ) -> None:
        self.servable = servable
        self.servable_id = servable_id
        self._on_release: Callable[[], None] | None = on_release

    def release(self) -> None:
        """Give it back; the last one of a draining version lets it unload."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
