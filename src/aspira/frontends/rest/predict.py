"""REST predict: a JSON body to a prediction and back."""

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME, ModelSpec
from aspira.contracts.inference import PredictRequest
from aspira.frontends.rest.json_response import encode_predictions
from aspira.frontends.rest.json_tensors import decode_inputs, parse_predict_body
from aspira.frontends.rest.messages import HttpRequest, HttpResponse
from aspira.service.inference import InferenceService


async def answer_predict(
    inference: InferenceService, *, spec: ModelSpec, request: HttpRequest
) -> tuple[HttpResponse, int]:
    """The response, and the version that gave it.

    Raises:
        ServingError: in the order in which TensorFlow Serving checks.
    """
    body = parse_predict_body(request.body)
    name = body.signature_name or DEFAULT_SIGNATURE_NAME
    with inference.lease(spec) as lease:
        signature = lease.servable.signatures.get(name)
        if signature is None:
            raise InvalidArgument(f'Serving signature name: "{name}" not found in signature def')
        decoded = decode_inputs(body, signature=signature)
        response = await inference.predict_leased(
            PredictRequest(
                spec._replace(signature_name=name), decoded.inputs, deadline=request.deadline
            ),
            lease=lease,
        )
    encoded = encode_predictions(response.outputs, is_row_format=decoded.is_row_format)
    return HttpResponse(200, encoded), response.servable_id.version
