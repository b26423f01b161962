import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelName, ModelSpec, Version, VersionLabel
from aspira.routing.table import RoutingTable, choose_version

STABLE = VersionLabel("stable")
TABLE = RoutingTable(
    {
        ModelName("m"): {STABLE: Version(1), VersionLabel("canary"): Version(2)},
        ModelName("n"): {STABLE: Version(0)},
    }
)


def spec(name: str, *, version: int | None = None, label: str | None = None) -> ModelSpec:
    return ModelSpec(
        ModelName(name),
        version=None if version is None else Version(version),
        label=None if label is None else VersionLabel(label),
    )


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (spec("m", label="stable"), 1),
        (spec("m", label="canary"), 2),
        (spec("n", label="stable"), 0),
        (spec("m", version=7), 7),
        (spec("m", version=0), 0),
        (spec("x", version=7), 7),
        (spec("m"), None),
        (spec("x"), None),
    ],
)
def test_where_a_request_goes(asked: ModelSpec, version: int | None) -> None:
    assert choose_version(TABLE, spec=asked) == version


@pytest.mark.parametrize(
    "asked", [spec("m", label="gone"), spec("n", label="canary"), spec("x", label="stable")]
)
def test_an_unknown_label(asked: ModelSpec) -> None:
    with pytest.raises(InvalidArgument) as caught:
        choose_version(TABLE, spec=asked)
    assert caught.value.message == f"Unrecognized servable version label: {asked.label}"


def test_at_first_no_label_is_known() -> None:
    with pytest.raises(InvalidArgument):
        choose_version(RoutingTable(), spec=spec("m", label="stable"))
