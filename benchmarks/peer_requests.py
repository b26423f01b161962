"""The request of each kind of server for the same model: the same numbers, each in its own form."""

import base64
import json
from dataclasses import replace

import numpy as np

from endpoints import Endpoint, Protocol, frame_message
from models import Array, Model, grpc_predict, is_close, rest_predict
from open_inference import ModelInferRequest, ModelInferResponse

_INFER = "/inference.GRPCInferenceService/ModelInfer"


def rows_json(model: Model, *, path: str) -> Endpoint:
    """TensorFlow Serving's row format; the answer may also be the bare list of rows."""

    def is_right(answer: bytes) -> bool:
        found = json.loads(answer)
        return is_close(found["predictions"] if isinstance(found, dict) else found, model=model)

    return replace(rest_predict(model), path=path, is_right=is_right)


def raw(model: Model, *, path: str) -> Endpoint:
    """The floats as they lie in memory, both ways: nothing to parse."""
    return Endpoint(
        Protocol.REST,
        path,
        body=model.input.tobytes(),
        is_right=lambda answer: is_close(np.frombuffer(answer, np.float32), model=model),
        content_type="application/octet-stream",
    )


def base64_json(model: Model, *, path: str) -> Endpoint:
    """The floats as base64 in JSON, both ways."""

    def is_right(answer: bytes) -> bool:
        content = base64.b64decode(json.loads(answer)["base64"])
        return is_close(np.frombuffer(content, np.float32), model=model)

    content = {"base64": base64.b64encode(model.input.tobytes()).decode()}
    return Endpoint(Protocol.REST, path, body=json.dumps(content).encode(), is_right=is_right)


def predict_grpc(model: Model, *, metadata: tuple[tuple[str, str], ...] = ()) -> Endpoint:
    """TensorFlow Serving's Predict."""
    return replace(grpc_predict(model), metadata=metadata)


def infer_json(model: Model) -> Endpoint:
    """The Open Inference Protocol over REST."""
    array = _with_batch_axis(model.input)
    tensor = {
        "name": model.input_name,
        "shape": array.shape,
        "datatype": "FP32",
        "data": array.ravel().tolist(),
    }

    def is_right(answer: bytes) -> bool:
        (output,) = json.loads(answer)["outputs"]
        return is_close(output["data"], model=model)

    body = json.dumps({"inputs": [tensor]}).encode()
    return Endpoint(Protocol.REST, f"/v2/models/{model.name}/infer", body=body, is_right=is_right)


def infer_grpc(model: Model) -> Endpoint:
    """The Open Inference Protocol over gRPC, the floats as raw contents."""
    array = _with_batch_axis(model.input)
    request = ModelInferRequest(model_name=model.name, raw_input_contents=[array.tobytes()])
    request.inputs.add(name=model.input_name, datatype="FP32", shape=array.shape)

    def is_right(answer: bytes) -> bool:
        response = ModelInferResponse.FromString(answer)
        if response.raw_output_contents:
            return is_close(np.frombuffer(response.raw_output_contents[0], np.float32), model=model)
        (output,) = response.outputs
        return is_close(output.contents.fp32_contents, model=model)

    body = frame_message(request.SerializeToString())
    return Endpoint(Protocol.GRPC, _INFER, body=body, is_right=is_right)


def _with_batch_axis(array: Array) -> Array:
    """Servers of this protocol batch along the first axis: three numbers become one row."""
    return array[np.newaxis] if array.ndim == 1 else array
