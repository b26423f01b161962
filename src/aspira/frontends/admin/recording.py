"""Recording warm-up requests over HTTP: parameters in the query, the file as the answer."""

import json
import math
from urllib.parse import parse_qsl

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelSpec
from aspira.frontends.rest.messages import HttpRequest, HttpResponse
from aspira.service.recorder import RecordingOrder
from aspira.service.recording import RecordingService

SUMMARY_HEADER = "aspira-recording"
_CONTENT_TYPE = "application/octet-stream"


async def answer_recording(
    recording: RecordingService, *, spec: ModelSpec, request: HttpRequest
) -> HttpResponse:
    """Record what is asked of a model from now on; answers once the recording is complete.

    Raises:
        ServingError: as `RecordingService.record`, or the query cannot be understood.
    """
    recorded = await recording.record(_parse_order(spec, query=request.query))
    summary = {
        "num_records": recorded.num_records,
        "num_shapes": recorded.num_shapes,
        "num_too_large": recorded.num_too_large,
        "model_version": str(recorded.version),
        "base_path": recorded.base_path,
    }
    headers = {SUMMARY_HEADER: json.dumps(summary)}
    return HttpResponse(200, recorded.content, content_type=_CONTENT_TYPE, headers=headers)


def _parse_order(spec: ModelSpec, *, query: str) -> RecordingOrder:
    order = RecordingOrder(spec)
    for name, text in parse_qsl(query, keep_blank_values=True):
        match name:
            case "num_records":
                order = order._replace(num_records=int(_parse_number(name, text=text)))
            case "num_records_per_shape":
                order = order._replace(num_records_per_shape=int(_parse_number(name, text=text)))
            case "timeout_seconds":
                order = order._replace(timeout_s=_parse_number(name, text=text))
            case "sampling_rate":
                order = order._replace(sampling_rate=_parse_number(name, text=text))
            case _:
                raise InvalidArgument(
                    f"No parameter {name!r}; there are num_records, num_records_per_shape, "
                    "timeout_seconds and sampling_rate"
                )
    return order


def _parse_number(name: str, *, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"{name} is {text!r}, which is no number")
    return number
