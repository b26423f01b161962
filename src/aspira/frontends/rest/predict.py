"""REST predict: a JSON body to a prediction and back."""

from functools import partial

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME, ModelSpec
from aspira.contracts.inference import PredictRequest
from aspira.frontends.offload import LARGE_BYTES, count_bytes, on_thread
from aspira.frontends.rest.json_response import encode_predictions
from aspira.frontends.rest.json_tensors import DecodeInputs, decode_inputs, parse_predict_body
from aspira.frontends.rest.messages import HttpRequest, HttpResponse, InferenceAnswer
from aspira.service.inference import InferenceService


async def answer_predict(
    inference: InferenceService,
    *,
    spec: ModelSpec,
    request: HttpRequest,
    decode: DecodeInputs = decode_inputs,
) -> InferenceAnswer:
    """Answer from the body.

    Raises:
        ServingError: in the order in which TensorFlow Serving checks.
    """
    num_bytes = len(request.body)
    if num_bytes < LARGE_BYTES:
        body = parse_predict_body(request.body)
    else:
        body = await on_thread(partial(parse_predict_body, request.body))
    name = body.signature_name or DEFAULT_SIGNATURE_NAME
    with inference.lease(spec) as lease:
        signature = lease.servable.signatures.get(name)
        if signature is None:
            advice = lease.servable.signature_advice
            raise InvalidArgument(
                f'Serving signature name: "{shorten(name)}" not found in signature def{advice}'
            )
        if num_bytes < LARGE_BYTES:
            decoded = decode(body, signature=signature)
        else:
            decoded = await on_thread(partial(decode, body, signature=signature))
        # What was parsed may be larger than the tensors that were made of it.
        del body
        response = await inference.predict_leased(
            PredictRequest(
                ModelSpec(spec.name, spec.version, spec.label, name),
                decoded.inputs,
                (),
                request.deadline,
                request.priority,
            ),
            lease=lease,
        )
    outputs, is_row_format = response.outputs, decoded.is_row_format
    if count_bytes(outputs.values()) < LARGE_BYTES:
        encoded = encode_predictions(outputs, is_row_format=is_row_format)
    else:
        encode = partial(encode_predictions, outputs, is_row_format=is_row_format)
        encoded = await on_thread(encode)
    return InferenceAnswer(HttpResponse(200, encoded), response.servable_id.version, response.run_s)
