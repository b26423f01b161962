"""All models at a glance: which there are, the state of each version, what it can be asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aspira.batching.scheduler import BatchingStatistics
from aspira.batching.servable import BatchedServable
from aspira.contracts.errors import NotFound, Unavailable
from aspira.contracts.identity import ModelName, ModelSpec, VersionLabel
from aspira.contracts.servable import Served, SignatureRuntime
from aspira.lifecycle.version_record import VersionStatus
from aspira.llm.servable import LanguageModel
from aspira.service.models import ModelsService


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """What a loaded version can be asked, what answers, and what was learned of its runs.

    `runtimes` names signatures for which there was a choice; `batching` is None of a version that
    answers no predictions.
    """

    signature_names: tuple[str, ...] = ()
    runtimes: Mapping[str, SignatureRuntime] = field(default_factory=dict)
    batching: BatchingStatistics | None = None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version of a model; of one that is not available there are no facts to tell."""

    status: VersionStatus
    labels: tuple[VersionLabel, ...]
    facts: ServingFacts


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


def find_predictor(servable: Served) -> BatchedServable | None:
    """The part of a version that answers predictions: often all of it, or part, or none."""
    found = servable.predictor if isinstance(servable, LanguageModel) else servable
    return found if isinstance(found, BatchedServable) else None


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
            _gather_facts(models, spec=ModelSpec(name, version=status.version)),
        )
        for status in statuses
    )


def _gather_facts(models: ModelsService, *, spec: ModelSpec) -> ServingFacts:
    try:
        lease = models.lease(spec)
    except (NotFound, Unavailable):
        return ServingFacts()
    with lease:
        names = tuple(sorted(lease.servable.signatures))
        predictor = find_predictor(lease.servable)
        if predictor is None:
            return ServingFacts(names)
        return ServingFacts(names, predictor.runtimes, predictor.statistics())
