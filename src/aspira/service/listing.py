"""All models at a glance: which there are, what state each version is in, what it can be asked."""

from dataclasses import dataclass

from aspira.contracts.errors import NotFound, Unavailable
from aspira.contracts.identity import ModelName, ModelSpec, VersionLabel
from aspira.lifecycle.version_record import VersionStatus
from aspira.service.models import ModelsService


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version of a model; one that is not available has no signatures to tell of."""

    status: VersionStatus
    labels: tuple[VersionLabel, ...]
    signature_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A configured model, its versions newest first.

    `problem` says why none of them can answer; it is empty where one can.
    """

    name: ModelName
    base_path: str
    versions: tuple[ListedVersion, ...]
    problem: str


def list_models(models: ModelsService) -> list[ListedModel]:
    """The configured models, in the configuration's order."""
    problems = models.unavailable()
    return [
        ListedModel(
            name, config.model.base_path, _list_versions(models, name=name), problems.get(name, "")
        )
        for name, config in models.configs.items()
    ]


def _list_versions(models: ModelsService, *, name: ModelName) -> tuple[ListedVersion, ...]:
    labels = models.configs[name].labels
    try:
        statuses = models.statuses(ModelSpec(name))
    except NotFound:
        return ()
    return tuple(
        ListedVersion(
            status,
            tuple(sorted(label for label, version in labels.items() if version == status.version)),
            _list_signatures(models, spec=ModelSpec(name, version=status.version)),
        )
        for status in statuses
    )


def _list_signatures(models: ModelsService, *, spec: ModelSpec) -> tuple[str, ...]:
    try:
        return models.signature_names(spec)
    except (NotFound, Unavailable):
        return ()
