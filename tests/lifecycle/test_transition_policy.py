"""The rules of TensorFlow Serving's two policies, one action at a time."""

import pytest

from aspira.contracts.identity import Version
from aspira.lifecycle.transition_policy import (
    Action,
    ActionKind,
    TransitionPolicy,
    VersionSnapshot,
    next_availability_preserving,
    next_resource_preserving,
)
from aspira.lifecycle.version_state import VersionState

NEW, LOADING, READY, DRAINING, UNLOADING, GONE, FAILED = VersionState
ALIVE_BUT_NOT_READY = [LOADING, DRAINING, UNLOADING]


def wanted(version: int, state: VersionState) -> VersionSnapshot:
    return VersionSnapshot(Version(version), state, is_aspired=True)


def unwanted(version: int, state: VersionState) -> VersionSnapshot:
    return VersionSnapshot(Version(version), state, is_aspired=False)


def load(version: int) -> Action:
    return Action(ActionKind.LOAD, Version(version))


def unload(version: int) -> Action:
    return Action(ActionKind.UNLOAD, Version(version))


@pytest.mark.parametrize("state", [NEW, LOADING, FAILED])
def test_a_version_is_not_spared_before_its_successor_of_the_same_number_is_ready(
    state: VersionState,
) -> None:
    others = [wanted(9, READY), unwanted(8, READY)]
    versions = [unwanted(1, READY), wanted(1, state), *others]
    assert next_availability_preserving(versions) == unload(8)
    left = versions[:-1]
    assert next_availability_preserving(left) == (load(1) if state is NEW else None)
    assert next_availability_preserving([unwanted(1, READY), wanted(1, READY)]) == unload(1)


class Model:
    """Versions as a policy moves them; every action ends at once."""

    def __init__(self, policy: TransitionPolicy, *, fails: set[int] | None = None) -> None:
        self.states: dict[int, VersionState] = {}
        self._policy = policy
        self._fails = fails or set()

    def aspire(self, *versions: int) -> list[str]:
        """What is done until nothing is left to do, such as `load 2`."""
        self.states = {
            version: state
            for version, state in self.states.items()
            if state is READY or version in versions
        }
        for version in versions:
            self.states.setdefault(version, NEW)
        done = []
        while (action := self._next_action(versions)) is not None:
            done.append(f"{action.kind.value} {action.version}")
            self._finish(action)
        return done

    def _next_action(self, aspired: tuple[int, ...]) -> Action | None:
        return self._policy(
            [
                VersionSnapshot(Version(version), state, is_aspired=version in aspired)
                for version, state in self.states.items()
            ]
        )

    def _finish(self, action: Action) -> None:
        if action.kind is ActionKind.UNLOAD:
            assert self.states.pop(action.version) is READY
            return
        assert self.states[action.version] is NEW
        self.states[action.version] = FAILED if action.version in self._fails else READY


def test_a_new_version_is_loaded_before_the_old_one_goes() -> None:
    model = Model(next_availability_preserving)
    assert model.aspire(1) == ["load 1"]
    assert model.aspire(2) == ["load 2", "unload 1"]


def test_while_the_new_version_has_failed_the_old_one_stays() -> None:
    model = Model(next_availability_preserving, fails={2})
    model.aspire(1)
    assert model.aspire(2) == ["load 2"]
    assert model.states == {1: READY, 2: FAILED}
    assert model.aspire(2) == []
    assert model.aspire(3) == ["load 3", "unload 1"]
    assert model.states == {3: READY}


def test_two_versions_are_replaced_one_by_one() -> None:
    model = Model(next_availability_preserving)
    assert model.aspire(1, 2) == ["load 2", "load 1"]
    assert model.aspire(3, 4) == ["unload 1", "load 4", "unload 2", "load 3"]


def test_a_rollback_loads_the_older_version_first() -> None:
    model = Model(next_availability_preserving)
    model.aspire(2)
    assert model.aspire(1) == ["load 1", "unload 2"]


def test_a_model_that_is_removed_unloads_lowest_first() -> None:
    model = Model(next_availability_preserving)
    model.aspire(2, 3, 1)
    assert model.aspire() == ["unload 1", "unload 2", "unload 3"]


def test_when_resources_matter_the_old_version_goes_first() -> None:
    model = Model(next_resource_preserving)
    assert model.aspire(1) == ["load 1"]
    assert model.aspire(2) == ["unload 1", "load 2"]
    assert model.aspire(3, 4) == ["unload 2", "load 4", "load 3"]
    assert model.aspire() == ["unload 3", "unload 4"]


@pytest.mark.parametrize(
    ("versions", "action"),
    [
        ([], None),
        ([wanted(1, NEW)], load(1)),
        ([wanted(1, NEW), wanted(3, NEW), wanted(2, NEW)], load(3)),
        ([wanted(1, NEW), wanted(2, LOADING)], load(1)),
        ([wanted(1, LOADING)], None),
        ([wanted(1, READY)], None),
        ([wanted(1, FAILED)], None),
        ([unwanted(1, READY)], unload(1)),
        ([unwanted(2, READY), unwanted(1, READY)], unload(1)),
        ([unwanted(1, READY), wanted(2, NEW)], load(2)),
        ([unwanted(1, READY), wanted(2, LOADING)], None),
        ([unwanted(1, READY), wanted(2, FAILED)], None),
        ([unwanted(1, READY), wanted(2, READY)], unload(1)),
        ([unwanted(1, READY), wanted(2, READY), wanted(3, NEW)], unload(1)),
        ([unwanted(1, READY), unwanted(2, READY), wanted(3, LOADING)], unload(1)),
        ([unwanted(1, LOADING), unwanted(2, DRAINING)], None),
        ([unwanted(1, DRAINING), wanted(2, NEW)], load(2)),
        ([unwanted(1, NEW)], None),
    ],
)
def test_availability_preserving(versions: list[VersionSnapshot], action: Action | None) -> None:
    assert next_availability_preserving(versions) == action
    assert next_availability_preserving(versions[::-1]) == action


@pytest.mark.parametrize(
    ("versions", "action"),
    [
        ([], None),
        ([wanted(1, NEW), wanted(3, NEW), wanted(2, NEW)], load(3)),
        ([unwanted(2, READY), unwanted(1, READY), wanted(3, NEW)], unload(1)),
        ([unwanted(1, READY), wanted(2, READY)], unload(1)),
        *(([unwanted(1, state), wanted(2, NEW)], None) for state in ALIVE_BUT_NOT_READY),
        ([unwanted(1, GONE), wanted(2, NEW)], load(2)),
        ([unwanted(1, FAILED), wanted(2, NEW)], load(2)),
        ([wanted(1, FAILED), wanted(2, NEW)], load(2)),
        ([wanted(1, READY), wanted(2, NEW)], load(2)),
    ],
)
def test_resource_preserving(versions: list[VersionSnapshot], action: Action | None) -> None:
    assert next_resource_preserving(versions) == action
    assert next_resource_preserving(versions[::-1]) == action
