"""The routing table: an immutable value, replaced whole, that says where labels point."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.identity import ModelName, ModelSpec, Version, VersionLabel

Labels = Mapping[VersionLabel, Version]


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Version labels by model, and every model that is configured."""

    labels: Mapping[ModelName, Labels] = field(default_factory=dict)
    models: AbstractSet[ModelName] = frozenset()


def choose_version(table: RoutingTable, *, spec: ModelSpec) -> Version | None:
    """The version a request goes to; None leaves the choice to availability (the newest).

    Raises:
        InvalidArgument: the label is not bound to any version of this model.
    """
    if spec.label is None:
        return spec.version
    version = table.labels.get(spec.name, {}).get(spec.label)
    if version is None:
        raise InvalidArgument(f"Unrecognized servable version label: {shorten(spec.label)}")
    return version
