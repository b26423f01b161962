import numpy as np
import pytest
from google.protobuf import wrappers_pb2
from tensorflow_serving.apis import model_pb2, predict_pb2

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version, VersionLabel
from aspira.contracts.inference import PredictResponse
from aspira.wire.prediction import (
    decode_model_spec,
    decode_predict_request,
    encode_predict_response,
)
from aspira.wire.tensor_proto import decode_tensor, encode_tensor

X = np.float32([1, 2, 5])


def request(spec: model_pb2.ModelSpec | None) -> predict_pb2.PredictRequest:
    return predict_pb2.PredictRequest(model_spec=spec)


def version(number: int) -> wrappers_pb2.Int64Value:
    return wrappers_pb2.Int64Value(value=number)


@pytest.mark.parametrize(
    ("message", "spec"),
    [
        (model_pb2.ModelSpec(name="m"), ModelSpec(ModelName("m"))),
        (
            model_pb2.ModelSpec(name="m", version=version(7), signature_name="s"),
            ModelSpec(ModelName("m"), version=Version(7), signature_name="s"),
        ),
        (
            model_pb2.ModelSpec(name="m", version=version(0)),
            ModelSpec(ModelName("m"), version=Version(0)),
        ),
        (
            model_pb2.ModelSpec(name="m", version_label="stable"),
            ModelSpec(ModelName("m"), label=VersionLabel("stable")),
        ),
    ],
)
def test_a_model_spec(message: model_pb2.ModelSpec, spec: ModelSpec) -> None:
    assert decode_model_spec(request(message)) == spec


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "Missing ModelSpec"),
        (model_pb2.ModelSpec(), "ModelSpec has no name specified."),
        (model_pb2.ModelSpec(version_label="stable"), "ModelSpec has no name specified."),
    ],
)
def test_a_request_without_a_model(spec: model_pb2.ModelSpec | None, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_predict_request(request(spec), deadline=None)
    assert caught.value.message == text


def test_a_predict_request() -> None:
    message = request(model_pb2.ModelSpec(name="m"))
    encode_tensor(X, into=message.inputs["x"])
    message.output_filter.extend(["z", "y"])
    decoded = decode_predict_request(message, deadline=12.5)
    assert decoded.spec == ModelSpec(ModelName("m"))
    assert decoded.inputs.keys() == {"x"}
    np.testing.assert_array_equal(decoded.inputs["x"], X, strict=True)
    assert decoded.output_filter == ("z", "y")
    assert decoded.deadline == 12.5


def test_a_tensor_that_cannot_be_read_is_named() -> None:
    message = request(model_pb2.ModelSpec(name="m"))
    encode_tensor(X, into=message.inputs["good"])
    message.inputs["bad"].SetInParent()
    with pytest.raises(InvalidArgument) as caught:
        decode_predict_request(message, deadline=None)
    assert caught.value.message == "tensor parsing error: bad"


@pytest.mark.parametrize("use_tensor_content", [False, True])
def test_a_predict_response(use_tensor_content: bool) -> None:
    message = predict_pb2.PredictResponse()
    encode_predict_response(
        PredictResponse({"y": X}, ServableId(ModelName("m"), Version(3)), "serving_default"),
        into=message,
        use_tensor_content=use_tensor_content,
    )
    read = predict_pb2.PredictResponse.FromString(message.SerializeToString())
    assert read.model_spec == model_pb2.ModelSpec(
        name="m", version=version(3), signature_name="serving_default"
    )
    assert read.outputs.keys() == {"y"}
    np.testing.assert_array_equal(decode_tensor(read.outputs["y"], alias="y"), X, strict=True)
    assert bool(read.outputs["y"].tensor_content) == use_tensor_content


def test_version_zero_is_said() -> None:
    message = predict_pb2.PredictResponse()
    encode_predict_response(
        PredictResponse({}, ServableId(ModelName("m"), Version(0)), "s"),
        into=message,
        use_tensor_content=False,
    )
    assert message.model_spec.HasField("version")
