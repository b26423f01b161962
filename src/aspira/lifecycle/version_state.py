"""The states of a version and the only legal moves between them.

    new -> loading -> ready -> draining -> unloading -> gone
     |        |                                          ^
     |        +--> failed                                |
     +---------------------------------------------------+

`failed` and `gone` are final: the same number aspired again is a new life of it.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class VersionState(Enum):
    """Where a version is in its life."""

    NEW = "new"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    UNLOADING = "unloading"
    GONE = "gone"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return not _LEGAL_MOVES[self]


_LEGAL_MOVES: Mapping[VersionState, frozenset[VersionState]] = MappingProxyType(
    {
        VersionState.NEW: frozenset({VersionState.LOADING, VersionState.GONE}),
        VersionState.LOADING: frozenset({VersionState.READY, VersionState.FAILED}),
        VersionState.READY: frozenset({VersionState.DRAINING}),
        VersionState.DRAINING: frozenset({VersionState.UNLOADING}),
        VersionState.UNLOADING: frozenset({VersionState.GONE}),
        VersionState.GONE: frozenset(),
        VersionState.FAILED: frozenset(),
    }
)


def next_state(current: VersionState, *, wanted: VersionState) -> VersionState:
    """`wanted`, which must be a legal move from `current`."""
    assert wanted in _LEGAL_MOVES[current], f"illegal move {current.value} -> {wanted.value}"
    return wanted
