import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis.get_model_metadata_pb2 import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    SignatureDefMap,
)
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from asgi_exchange import get
from aspira.contracts.errors import Code
from aspira.contracts.tensors import DataType
from aspira.frontends.grpc import prediction
from aspira.frontends.grpc.options import GrpcOptions
from aspira.settings import DEFAULT_METRICS_PATH, Settings
from aspira.wire.predict_writer import PredictResponseWriter
from aspira.wire.tensor_proto import encode_tensor
from grpc_exchange import CallResult, call_request, read_result
from serving_toys import ask, config_entry, listed_models, single_model, write_version

PREDICT = "/tensorflow.serving.PredictionService/Predict"
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Versions 1 and 2 of the model `m`, of which 2 has the label `next`."""
    write_version(tmp_path / "m", version=1)
    write_version(tmp_path / "m", version=2)
    fields = "model_version_policy { all {} } version_labels { key: 'next' value: 2 }"
    return listed_models(
        tmp_path / "models.txt", entries=[config_entry(tmp_path / "m", fields=fields)]
    )


def predict_request(*values: float, name: str = "m", alias: str = "x") -> PredictRequest:
    request = PredictRequest()
    request.model_spec.name = name
    if values:
        tensor = request.inputs[alias]
        tensor.dtype = DataType.FLOAT
        tensor.tensor_shape.dim.add(size=len(values))
        tensor.float_val.extend(values)
    return request


def predict(
    settings: Settings, request: PredictRequest, *, headers: dict[str, str] | None = None
) -> CallResult:
    (answer,) = ask(settings, call_request(PREDICT, request, headers=headers))
    return read_result(answer, answer_class=PredictResponse)


def refusal(settings: Settings, request: PredictRequest) -> tuple[Code, str]:
    result = predict(settings, request)
    assert result.messages == []
    return result.code, result.text


def metadata(settings: Settings, *fields: str, name: str = "m") -> CallResult:
    request = GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = name
    (answer,) = ask(settings, call_request(METADATA, request))
    return read_result(answer, answer_class=GetModelMetadataResponse)


def test_an_answer_says_which_version_and_signature_gave_it(settings: Settings) -> None:
    (response,) = predict(settings, predict_request(2.0, 3.0)).messages
    assert response.model_spec.name == "m"
    assert response.model_spec.version.value == 2
    assert response.model_spec.signature_name == "serving_default"
    (alias,) = response.outputs
    assert alias == "y"
    assert list(response.outputs["y"].float_val) == [3.0, 3.5]
    assert [dim.size for dim in response.outputs["y"].tensor_shape.dim] == [2]
    assert response.outputs["y"].dtype == DataType.FLOAT


def test_a_version_can_be_chosen(settings: Settings) -> None:
    request = predict_request(2.0)
    request.model_spec.version.value = 1
    (response,) = predict(settings, request).messages
    assert list(response.outputs["y"].float_val) == [2.0]
    assert response.model_spec.version.value == 1


def test_a_label_is_resolved_and_not_echoed(settings: Settings) -> None:
    request = predict_request(2.0)
    request.model_spec.version_label = "next"
    (response,) = predict(settings, request).messages
    assert response.model_spec.WhichOneof("version_choice") == "version"
    assert response.model_spec.version.value == 2


def test_outputs_can_be_named(settings: Settings) -> None:
    request = predict_request(2.0)
    request.output_filter.append("y")
    (response,) = predict(settings, request).messages
    assert list(response.outputs) == ["y"]


def test_outputs_can_be_tensor_content(settings: Settings) -> None:
    settings = replace(settings, grpc=GrpcOptions(use_tensor_content=True))
    (response,) = predict(settings, predict_request(2.0)).messages
    assert response.outputs["y"].tensor_content == b"\0\0\x40\x40"
    assert list(response.outputs["y"].float_val) == []


def _without_spec(request: PredictRequest) -> None:
    request.ClearField("model_spec")


def _without_name(request: PredictRequest) -> None:
    request.model_spec.name = ""


def _unknown_model(request: PredictRequest) -> None:
    request.model_spec.name = "other"


def _version(request: PredictRequest, *, number: int) -> None:
    request.model_spec.version.value = number


def _unknown_label(request: PredictRequest) -> None:
    request.model_spec.version_label = "stable"


def _unknown_signature(request: PredictRequest) -> None:
    request.model_spec.signature_name = "other"


def _without_inputs(request: PredictRequest) -> None:
    request.inputs.clear()


def _wrong_input(request: PredictRequest) -> None:
    request.inputs["z"].CopyFrom(request.inputs.pop("x"))


def _without_dtype(request: PredictRequest) -> None:
    request.inputs["x"].ClearField("dtype")


def _unknown_output(request: PredictRequest) -> None:
    request.output_filter.append("z")


def _output_twice(request: PredictRequest) -> None:
    request.output_filter.extend(["y", "y"])


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (_without_spec, Code.INVALID_ARGUMENT, "Missing ModelSpec"),
        (_without_name, Code.INVALID_ARGUMENT, "ModelSpec has no name specified."),
        (_unknown_model, Code.NOT_FOUND, "Servable not found for request: Latest(other)"),
        (
            lambda request: _version(request, number=7),
            Code.NOT_FOUND,
            "Servable not found for request: Specific(m, 7)",
        ),
        (
            lambda request: _version(request, number=0),
            Code.NOT_FOUND,
            "Servable not found for request: Specific(m, 0)",
        ),
        (_unknown_label, Code.INVALID_ARGUMENT, "Unrecognized servable version label: stable"),
        (
            _unknown_signature,
            Code.FAILED_PRECONDITION,
            'Serving signature key "other" not found.',
        ),
        (
            _without_inputs,
            Code.INVALID_ARGUMENT,
            (
                "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. "
                "Missing but required: {x}."
            ),
        ),
        (
            _wrong_input,
            Code.INVALID_ARGUMENT,
            (
                "Signature input alias: x(feed name: x:0) not found in request and no default "
                "value provided. Inputs expected to be in the request {x}, or default input alias "
                "set: {}"
            ),
        ),
        (_without_dtype, Code.INVALID_ARGUMENT, "tensor parsing error: x"),
        (
            _unknown_output,
            Code.INVALID_ARGUMENT,
            "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
        ),
        (_output_twice, Code.INVALID_ARGUMENT, "duplicate output tensor alias: y"),
    ],
)
def test_refusals(settings: Settings, change: Any, code: Code, text: str) -> None:
    request = predict_request(2.0)
    change(request)
    assert refusal(settings, request) == (code, text)


def test_a_deadline_that_has_passed_is_told(settings: Settings) -> None:
    result = predict(settings, predict_request(2.0), headers={"grpc-timeout": "0n"})
    assert result == CallResult([], Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")


def test_a_deadline_to_come_does_no_harm(settings: Settings) -> None:
    assert predict(settings, predict_request(2.0), headers={"grpc-timeout": "1H"}).code is Code.OK


def test_the_runtimes_own_error_is_passed_on_but_for_its_end(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1, run_error="x" * 2000)
    code, text = refusal(single_model(tmp_path / "m"), predict_request(2.0))
    assert code is Code.OUT_OF_RANGE
    assert text == "x" * 1024 + "...TRUNCATED"


def test_metadata_describes_the_newest_version(settings: Settings) -> None:
    (response,) = metadata(settings, "signature_def").messages
    assert response.model_spec.name == "m"
    assert response.model_spec.version.value == 2
    described = response.metadata["signature_def"]
    assert described.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signature = SignatureDefMap.FromString(described.value).signature_def["serving_default"]
    assert signature.inputs["x"].name == "x:0"
    assert signature.outputs["y"].dtype == DataType.FLOAT
    assert signature.method_name == "tensorflow/serving/predict"


@pytest.mark.parametrize(
    ("fields", "name", "code", "text"),
    [
        (
            [],
            "m",
            Code.INVALID_ARGUMENT,
            "GetModelMetadataRequest must specify at least one metadata_field",
        ),
        (
            ["signature_def", "size"],
            "m",
            Code.INVALID_ARGUMENT,
            "Metadata field size is not supported",
        ),
        (
            ["signature_def"],
            "other",
            Code.NOT_FOUND,
            "Servable not found for request: Latest(other)",
        ),
    ],
)
def test_metadata_refusals(
    settings: Settings, fields: list[str], name: str, code: Code, text: str
) -> None:
    assert metadata(settings, *fields, name=name) == CallResult([], code, text)


def test_what_is_not_served_is_unimplemented(settings: Settings) -> None:
    path = "/tensorflow.serving.PredictionService/SessionRun"
    (answer,) = ask(settings, call_request(path, predict_request()))
    result = read_result(answer, answer_class=PredictResponse)
    assert result == CallResult([], Code.UNIMPLEMENTED, f"Method not found: {path}")


def test_calls_are_counted_by_how_they_ended(settings: Settings) -> None:
    *_, page = ask(
        settings,
        call_request(PREDICT, predict_request(2.0)),
        call_request(PREDICT, predict_request(2.0)),
        call_request(PREDICT, predict_request()),
        get(DEFAULT_METRICS_PATH),
    )
    lines = page.body.decode().splitlines()
    assert ':tensorflow:serving:request_count{model_name="m",status="OK"} 2' in lines
    assert ':tensorflow:serving:request_count{model_name="m",status="INVALID_ARGUMENT"} 1' in lines
    assert (
        ":tensorflow:serving:request_latency_count"
        '{model_name="m",API="Predict",entrypoint="GRPC"} 2'
    ) in lines


def note_threads(monkeypatch: pytest.MonkeyPatch, owner: object, *, name: str) -> list[bool]:
    """For each call of a conversion whether it was on the event loop's thread."""
    are_on_loop: list[bool] = []
    convert: Callable[..., Any] = getattr(owner, name)

    def note(*arguments: Any, **options: Any) -> Any:
        are_on_loop.append(threading.current_thread() is threading.main_thread())
        return convert(*arguments, **options)

    monkeypatch.setattr(owner, name, note)
    return are_on_loop


@pytest.mark.parametrize(
    ("num_values", "are_on_loop"),
    [(10, (True, True)), (2**16, (True, False)), (2**18, (False, False))],
)
def test_only_large_tensors_are_converted_off_the_loop(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    num_values: int,
    are_on_loop: tuple[bool, bool],
) -> None:
    decoded = note_threads(monkeypatch, prediction, name="decode_predict_request")
    encoded = note_threads(monkeypatch, PredictResponseWriter, name="serialize")
    (response,) = predict(settings, predict_request(*[2.0] * num_values)).messages
    assert list(response.outputs["y"].float_val) == [3.0] * num_values
    assert (*decoded, *encoded) == are_on_loop


@pytest.mark.parametrize("dtype", [np.int64, np.float16])
def test_many_values_are_taken_one_by_one_off_the_loop(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, dtype: type
) -> None:
    decoded = note_threads(monkeypatch, prediction, name="decode_predict_request")
    request = predict_request()
    encode_tensor(np.ones(2**18, dtype), into=request.inputs["x"])
    (response,) = predict(settings, request).messages
    assert len(response.outputs["y"].float_val) == 2**18
    assert decoded == [False]
