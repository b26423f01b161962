"""A server with an accelerator, over both protocols and in both kinds of process."""

from pathlib import Path

import grpc
import numpy as np
import pytest
import requests
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from aspira.contracts.events import EventBus
from aspira.contracts.tensors import Tensor
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.runtimes.tensorflow import TensorflowLoader
from aspira.testing.saved_models import write_mlp
from aspira.wire.tensor_proto import decode_tensor, encode_tensor
from system.server_process import ServerProcess

X = np.linspace(-1, 1, 3 * 16, dtype=np.float32).reshape(3, 16)


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mlp")
    write_mlp(directory / "1", sizes=(16, 32, 1))
    return directory


def tensorflows_answer(path: Path) -> Tensor:
    servable = TensorflowLoader(
        path, options=TensorflowOptions(), warmup=WarmupOptions(), events=EventBus()
    ).load()
    return servable.run("serving_default", inputs={"x": X}, outputs=("y",))["y"]


def ask_over_rest(server: ServerProcess) -> Tensor:
    url = f"{server.rest_url}/v1/models/default:predict"
    answer = requests.post(url, json={"inputs": X.tolist()}, timeout=30).json()
    return np.float32(answer["outputs"])


def ask_over_grpc(server: ServerProcess) -> Tensor:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    encode_tensor(X, into=request.inputs["x"])
    with grpc.insecure_channel(server.grpc_target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request, timeout=30)
    return decode_tensor(answer.outputs["y"], alias="y")


@pytest.mark.parametrize(("listener", "kind"), [("envoy", "openvino"), ("portable", "auto")])
def test_answers_are_tensorflows_and_what_serves_is_told(
    listener: str, kind: str, base_path: Path, tmp_path: Path
) -> None:
    path = base_path / "1"
    with ServerProcess(
        f"--listener={listener}",
        f"--model_base_path={base_path}",
        f"--accelerator={kind}",
        f"--compile_cache_dir={tmp_path / 'cache'}",
        log=tmp_path / "log",
    ) as server:
        for found in (ask_over_rest(server), ask_over_grpc(server)):
            np.testing.assert_allclose(found, tensorflows_answer(path), rtol=1e-4, atol=1e-5)
        metrics = requests.get(f"{server.rest_url}/monitoring/prometheus/metrics", timeout=30).text
        listing = requests.get(f"{server.rest_url}/v1/models", timeout=30).json()
    told = server.output().partition(f"Signature serving_default of {path} is served by ")[2]
    runtime = told.split()[0]
    assert runtime in {"auto": ("openvino", "tensorflow")}.get(kind, (kind,))
    (version,) = listing["models"][0]["model_version_status"]
    assert version["signature_runtimes"]["serving_default"]["runtime"] == runtime
    labels = f'model_path="{path}",signature_name="serving_default"'
    served_by = f'{labels},runtime="{runtime}",precision="f32"'
    assert f":aspira:signature_runtime{{{served_by}}} 1\n" in metrics
    assert f":aspira:compiles_after_ready{{{labels}}} 0\n" in metrics
