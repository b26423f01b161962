import numpy as np
import pytest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from aspira.contracts.examples import ExamplesRequest, InferenceTask, MultiInferenceRequest
from aspira.contracts.identity import ModelName, ModelSpec, Version
from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import Tensor
from aspira.wire.examples import decode_examples
from aspira.wire.prediction import decode_predict_request
from aspira.wire.prediction_log import LogKind, encode_prediction_log

SPEC = ModelSpec(ModelName("m"), version=Version(3), signature_name="s")
EXAMPLES = np.array([b"\n\x00", b""], np.object_)


@pytest.mark.parametrize(
    "tensor",
    [
        np.float32([[1, 2], [3, 4]]),
        np.array([b"a", b"\xff"], np.object_),
        np.array(True),
        np.zeros((0, 3), np.int64),
    ],
    ids=["floats", "strings", "scalar", "empty"],
)
def test_a_prediction_survives_but_for_its_version(tensor: Tensor) -> None:
    request = PredictRequest(SPEC, {"x": tensor}, ("y",), deadline=1.0)
    log = PredictionLog.FromString(encode_prediction_log(request, kind=LogKind.PREDICT))
    decoded = decode_predict_request(log.predict_log.request, deadline=None)
    assert decoded.spec == SPEC._replace(version=None)
    assert decoded.output_filter == ("y",)
    assert decoded.inputs["x"].dtype == tensor.dtype
    assert decoded.inputs["x"].tolist() == tensor.tolist()


@pytest.mark.parametrize("kind", [LogKind.CLASSIFY, LogKind.REGRESS])
def test_examples_survive_as_what_was_asked_of_them(kind: LogKind) -> None:
    request = ExamplesRequest(SPEC, EXAMPLES)
    log = PredictionLog.FromString(encode_prediction_log(request, kind=kind))
    assert log.WhichOneof("log_type") == kind.value
    logged = getattr(log, kind.value).request
    assert (logged.model_spec.name, logged.model_spec.signature_name) == ("m", "s")
    assert decode_examples(logged.input).tolist() == EXAMPLES.tolist()


def test_several_tasks_survive() -> None:
    tasks = (InferenceTask(SPEC, "a"), InferenceTask(SPEC._replace(signature_name=""), "b"))
    request = MultiInferenceRequest(tasks, EXAMPLES)
    log = PredictionLog.FromString(encode_prediction_log(request, kind=LogKind.MULTI_INFERENCE))
    logged = log.multi_inference_log.request
    assert [
        (task.model_spec.name, task.model_spec.signature_name, task.method_name)
        for task in logged.tasks
    ] == [("m", "s", "a"), ("m", "", "b")]
    assert decode_examples(logged.input).tolist() == EXAMPLES.tolist()
