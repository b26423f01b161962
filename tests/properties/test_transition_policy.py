"""Both policies end, whatever succeeds or fails in whatever order, and each keeps its promise."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aspira.contracts.identity import Version
from aspira.lifecycle.transition_policy import (
    ActionKind,
    TransitionPolicy,
    VersionSnapshot,
    next_availability_preserving,
    next_resource_preserving,
)
from aspira.lifecycle.version_state import VersionState, next_state

NEW, LOADING, READY, DRAINING, UNLOADING, GONE, FAILED = VersionState
IN_MEMORY = {LOADING, READY, DRAINING, UNLOADING}
# What a version on its way becomes next; a load may also fail.
SUCCESSORS = {LOADING: READY, DRAINING: UNLOADING, UNLOADING: GONE}

Versions = dict[Version, VersionSnapshot]
VERSIONS = st.integers(1, 9).map(Version)
SNAPSHOTS = st.builds(
    VersionSnapshot,
    version=VERSIONS,
    state=st.sampled_from([NEW, LOADING, READY, FAILED]),
    is_aspired=st.just(True),
) | st.builds(
    VersionSnapshot,
    version=VERSIONS,
    state=st.sampled_from([LOADING, READY, DRAINING, UNLOADING]),
    is_aspired=st.just(False),
)


class History:
    """Steps of a model: what the policy says, and what ends meanwhile, in any order."""

    def __init__(self, versions: Versions, *, policy: TransitionPolicy) -> None:
        self.versions = versions
        self.num_actions = 0
        self._policy = policy

    def act(self) -> Versions | None:
        """Do as the policy says; the versions as they were before, or None if it is content."""
        action = self._policy([v for v in self.versions.values() if v.state is not GONE])
        if action is None:
            return None
        before = dict(self.versions)
        wanted = LOADING if action.kind is ActionKind.LOAD else DRAINING
        self._move(action.version, state=wanted)
        self.num_actions += 1
        return before

    def end_something(self, data: st.DataObject) -> bool:
        """Let one version that is on its way get one step further; False if none is."""
        moving = sorted(v.version for v in self.versions.values() if v.state in SUCCESSORS)
        if not moving:
            return False
        version = data.draw(st.sampled_from(moving))
        state = self.versions[version].state
        is_failure = state is LOADING and data.draw(st.booleans())
        self._move(version, state=FAILED if is_failure else SUCCESSORS[state])
        return True

    def _move(self, version: Version, *, state: VersionState) -> None:
        known = self.versions[version]
        self.versions[version] = replace(known, state=next_state(known.state, wanted=state))


def count_ready(versions: Versions) -> int:
    return sum(v.state is READY for v in versions.values())


def run_to_the_end(history: History, *, data: st.DataObject, check: "Check") -> None:
    while True:
        before = history.act()
        if before is not None:
            check(before, history.versions)
            assert history.num_actions <= 2 * len(history.versions)
        elif not history.end_something(data):
            return


class Check:
    def __call__(self, before: Versions, after: Versions) -> None:
        """Fails if an action broke the policy's promise."""


class IsAvailable(Check):
    """The last ready version only goes if nothing at all is wanted."""

    def __call__(self, before: Versions, after: Versions) -> None:
        if count_ready(before) and not count_ready(after):
            assert not any(v.is_aspired for v in before.values())


class IsFrugal(Check):
    """What is not wanted and what is wanted are never in memory together because of a load."""

    def __call__(self, before: Versions, after: Versions) -> None:
        loaded = [v for v in after.values() if v.state is LOADING]
        if loaded != [v for v in before.values() if v.state is LOADING]:
            assert not any(v.state in IN_MEMORY and not v.is_aspired for v in after.values())


@pytest.mark.parametrize(
    ("policy", "check"),
    [
        (next_availability_preserving, IsAvailable()),
        (next_resource_preserving, IsFrugal()),
    ],
)
@settings(deadline=None)
@given(snapshots=st.lists(SNAPSHOTS, unique_by=lambda v: v.version), data=st.data())
def test_it_ends_with_what_was_wanted(
    policy: TransitionPolicy,
    check: Check,
    snapshots: list[VersionSnapshot],
    data: st.DataObject,
) -> None:
    history = History({v.version: v for v in snapshots}, policy=policy)
    run_to_the_end(history, data=data, check=check)
    wanted = [v.state for v in history.versions.values() if v.is_aspired]
    unwanted = [v.state for v in history.versions.values() if not v.is_aspired]
    assert set(wanted) <= {READY, FAILED}
    assert set(unwanted) <= {READY, FAILED, GONE}
    if READY in wanted or not wanted:
        assert READY not in unwanted


@settings(deadline=None)
@given(old=st.integers(1, 9), new=st.integers(1, 9), data=st.data())
def test_one_copy_at_most_is_in_memory_where_resources_matter(
    old: int, new: int, data: st.DataObject
) -> None:
    versions = {Version(new): VersionSnapshot(Version(new), NEW, is_aspired=True)}
    if old != new:
        versions[Version(old)] = VersionSnapshot(Version(old), READY, is_aspired=False)
    history = History(versions, policy=next_resource_preserving)
    while history.act() is not None or history.end_something(data):
        assert sum(v.state in IN_MEMORY for v in history.versions.values()) <= 1
    assert history.versions[Version(new)].state in {READY, FAILED}
