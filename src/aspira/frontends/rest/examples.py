"""REST classify and regress: a JSON body to examples, results to JSON."""

from collections.abc import Callable
from typing import TypeVar

from aspira.contracts.examples import ExamplesRequest, ExamplesResponse, ExamplesResult
from aspira.contracts.identity import ModelSpec
from aspira.frontends.offload import LARGE_EXAMPLES_BYTES, count_bytes, on_thread
from aspira.frontends.rest.json_examples import decode_examples_body
from aspira.frontends.rest.json_results import encode_classifications, encode_regressions
from aspira.frontends.rest.messages import HttpRequest, HttpResponse, InferenceAnswer
from aspira.service.examples import classify, regress
from aspira.service.inference import InferenceService

ResultT = TypeVar("ResultT", bound=ExamplesResult)


async def answer_classify(
    inference: InferenceService, *, spec: ModelSpec, request: HttpRequest
) -> InferenceAnswer:
    """Answer from the body.

    Raises:
        ServingError: in the order in which TensorFlow Serving checks.
    """
    asked = await _decode(request, spec=spec)
    response = await classify(inference, request=asked)
    return await _encode(response, encode=encode_classifications)


async def answer_regress(
    inference: InferenceService, *, spec: ModelSpec, request: HttpRequest
) -> InferenceAnswer:
    """As `answer_classify`."""
    asked = await _decode(request, spec=spec)
    response = await regress(inference, request=asked)
    return await _encode(response, encode=encode_regressions)


async def _decode(request: HttpRequest, *, spec: ModelSpec) -> ExamplesRequest:
    if len(request.body) < LARGE_EXAMPLES_BYTES:
        body = decode_examples_body(request.body)
    else:
        body = await on_thread(lambda: decode_examples_body(request.body))
    asked = spec._replace(signature_name=body.signature_name)
    return ExamplesRequest(asked, body.examples, request.deadline, request.priority)


async def _encode(
    response: ExamplesResponse[ResultT], *, encode: Callable[[ResultT], bytes]
) -> InferenceAnswer:
    result = response.result
    if count_bytes(result) < LARGE_EXAMPLES_BYTES:
        body = encode(result)
    else:
        body = await on_thread(lambda: encode(result))
    return InferenceAnswer(HttpResponse(200, body), response.servable_id.version, response.run_s)
