"""REST questions about models: listing, status and metadata."""

from aspira.contracts.errors import Code
from aspira.contracts.identity import ModelName, ModelSpec
from aspira.frontends.rest.messages import HttpResponse
from aspira.frontends.rest.status_json import (
    ModelEntry,
    VersionEntry,
    VersionStatus,
    describe_for_openai,
    encode_listing,
    encode_metadata,
    encode_model_status,
)
from aspira.lifecycle import version_record
from aspira.llm.encoders.model import EmbeddingModel
from aspira.llm.servable import LanguageModel
from aspira.service.listing import ListedModel, list_models
from aspira.service.models import WIRE_STATES, ModelsService


def answer_listing(models: ModelsService, *, with_paths: bool = False) -> HttpResponse:
    """All models; `with_paths` tells where each lies, which is nothing for clients."""
    entries = [_describe(model, with_paths=with_paths) for model in list_models(models)]
    return HttpResponse(200, encode_listing(entries, asked_by_openai=_asked_by_openai(models)))


def answer_status(models: ModelsService, *, spec: ModelSpec) -> HttpResponse:
    """The states of a model's versions, newest first."""
    statuses = [_as_wire_status(status) for status in models.statuses(spec)]
    card = describe_for_openai(spec.name) if spec.name in _asked_by_openai(models) else {}
    return HttpResponse(200, encode_model_status(statuses, card=card))


def answer_metadata(models: ModelsService, *, spec: ModelSpec) -> HttpResponse:
    """The signatures of a loaded version."""
    metadata = models.metadata(spec)
    return HttpResponse(200, encode_metadata(metadata.servable_id, signatures=metadata.signatures))


def _asked_by_openai(models: ModelsService) -> list[ModelName]:
    """Those that generate come first: chats that are told no model take the first."""
    return [*models.ready_of(LanguageModel), *models.ready_of(EmbeddingModel)]


def _describe(model: ListedModel, *, with_paths: bool) -> ModelEntry:
    versions = [VersionEntry(_as_wire_status(v.status), v.labels, v.facts) for v in model.versions]
    base_path = model.base_path if with_paths else ""
    return ModelEntry(model.name, versions, model.problem, base_path)


def _as_wire_status(status: version_record.VersionStatus) -> VersionStatus:
    return VersionStatus(
        version=status.version,
        state=WIRE_STATES[status.state],
        code=status.error.code if status.error else Code.OK,
        message=status.error.message if status.error else "",
    )
