import pytest

from aspira.lifecycle.version_state import VersionState, next_state

NEW, LOADING, READY, DRAINING, UNLOADING, GONE, FAILED = VersionState
LEGAL = {
    (NEW, LOADING),
    (NEW, GONE),
    (LOADING, READY),
    (LOADING, FAILED),
    (READY, DRAINING),
    (DRAINING, UNLOADING),
    (UNLOADING, GONE),
}
ILLEGAL = [
    (current, wanted)
    for current in VersionState
    for wanted in VersionState
    if (current, wanted) not in LEGAL
]


@pytest.mark.parametrize(("current", "wanted"), sorted(LEGAL, key=str))
def test_a_legal_move(current: VersionState, wanted: VersionState) -> None:
    assert next_state(current, wanted=wanted) is wanted


@pytest.mark.parametrize(("current", "wanted"), ILLEGAL)
def test_an_illegal_move(current: VersionState, wanted: VersionState) -> None:
    with pytest.raises(AssertionError, match=f"illegal move {current.value} -> {wanted.value}"):
        next_state(current, wanted=wanted)


def test_final_states() -> None:
    assert {state for state in VersionState if state.is_final} == {GONE, FAILED}
