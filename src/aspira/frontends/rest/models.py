"""REST questions about models: status and metadata."""

from aspira.contracts.errors import Code
from aspira.contracts.identity import ModelSpec
from aspira.frontends.rest.messages import HttpResponse
from aspira.frontends.rest.status_json import VersionStatus, encode_metadata, encode_model_status
from aspira.service.models import WIRE_STATES, ModelsService


def answer_status(models: ModelsService, *, spec: ModelSpec) -> HttpResponse:
    """The states of a model's versions, newest first."""
    statuses = [
        VersionStatus(
            version=status.version,
            state=WIRE_STATES[status.state],
            code=status.error.code if status.error else Code.OK,
            message=status.error.message if status.error else "",
        )
        for status in models.statuses(spec)
    ]
    return HttpResponse(200, encode_model_status(statuses))


def answer_metadata(models: ModelsService, *, spec: ModelSpec) -> HttpResponse:
    """The signatures of a loaded version."""
    metadata = models.metadata(spec)
    return HttpResponse(200, encode_metadata(metadata.servable_id, signatures=metadata.signatures))
