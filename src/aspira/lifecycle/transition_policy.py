"""What to do next for one model: pure functions from a snapshot to the next single action."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from aspira.contracts.identity import Version
from aspira.lifecycle.version_state import VersionState


@dataclass(frozen=True, slots=True)
class VersionSnapshot:
    """One version of the model as the policy sees it."""

    version: Version
    state: VersionState
    is_aspired: bool


class ActionKind(Enum):
    """What can be done to a version."""

    LOAD = "load"
    UNLOAD = "unload"


@dataclass(frozen=True, slots=True)
class Action:
    """Load or unload one version."""

    kind: ActionKind
    version: Version


TransitionPolicy = Callable[[Sequence[VersionSnapshot]], Action | None]


def next_availability_preserving(versions: Sequence[VersionSnapshot]) -> Action | None:
    """Unload only what can be spared: peak memory of two versions, no gap in service.

    The rules are TensorFlow Serving's AvailabilityPreservingPolicy. Where a version replaces one of
    the same number, that one cannot be spared before it is ready: somebody may ask for the number.
    """
    awaited = {v.version for v in versions if v.is_aspired and v.state is not VersionState.READY}
    spare = [version for version in _spare_ready(versions) if version not in awaited]
    is_any_aspired = any(version.is_aspired for version in versions)
    is_aspired_ready = any(
        version.is_aspired and version.state is VersionState.READY for version in versions
    )
    if spare and (not is_any_aspired or is_aspired_ready or len(spare) > 1):
        return Action(ActionKind.UNLOAD, min(spare))
    return _load_newest(versions)


def next_resource_preserving(versions: Sequence[VersionSnapshot]) -> Action | None:
    """Unload first, load when all is gone: peak memory of one version, a gap in service."""
    spare = _spare_ready(versions)
    if spare:
        return Action(ActionKind.UNLOAD, min(spare))
    if any(not version.is_aspired and not version.state.is_final for version in versions):
        return None
    return _load_newest(versions)


def _spare_ready(versions: Sequence[VersionSnapshot]) -> list[Version]:
    return [
        version.version
        for version in versions
        if not version.is_aspired and version.state is VersionState.READY
    ]


def _load_newest(versions: Sequence[VersionSnapshot]) -> Action | None:
    waiting = [
        version.version
        for version in versions
        if version.is_aspired and version.state is VersionState.NEW
    ]
    return Action(ActionKind.LOAD, max(waiting)) if waiting else None
