"""The models that are measured, kept in the user's cache, and requests for them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from endpoints import Endpoint, Protocol, frame_message
from servers import bind_to_parent

_WRITER = Path(__file__).with_name("model_writer.py")
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_TOLERANCE = 1e-3
TITLES = MappingProxyType(
    {
        "half_plus_two": "half_plus_two, 3 numbers",
        "mlp": "MLP 128-512-256-1, batch 1",
        "mobilenet": "MobileNetV2 224x224, batch 1",
    }
)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Model:
    """A served model, one input for it and the right answer."""

    name: str
    title: str
    input_name: str
    output_name: str
    input: Array
    answer: Array
    directory: Path = Path()
    """What holds the version directories, and lies beside the input; unused for the toy."""

    @property
    def version_directory(self) -> Path:
        return self.directory / "versions" / "1"

    @property
    def input_file(self) -> Path:
        return self.directory / "input.npy"


def make_toy_model() -> Model:
    """The model of aspira.testing.toy_servable."""
    array = np.array([1.0, 2.0, 5.0], np.float32)
    return Model("toy", "toy", input_name="x", output_name="y", input=array, answer=array / 2 + 2)


def prepare_models(log: Path, *, titles: Mapping[str, str] = TITLES) -> list[Model]:
    """The models named. Those not in the cache are written, which TensorFlow comments in `log`."""
    return [_prepare(name, title=title, log=log) for name, title in titles.items()]


def _prepare(name: str, *, title: str, log: Path) -> Model:
    directory = models_directory() / name
    if not directory.exists():
        print(f"Writing {name} ...", file=sys.stderr, flush=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(directory.with_name(f".{name}.partial"), ignore_errors=True)
        command = [sys.executable, str(_WRITER), name, str(directory)]
        with log.open("ab") as output:
            subprocess.run(bind_to_parent(command), check=True, stdout=output, stderr=output)
    return Model(
        name,
        title,
        input_name="image" if name == "mobilenet" else "x",
        output_name="scores" if name == "mobilenet" else "y",
        input=np.load(directory / "input.npy"),
        answer=np.load(directory / "answer.npy"),
        directory=directory,
    )


def models_directory() -> Path:
    """Where each model has a directory of its name."""
    return cache_directory() / f"tensorflow-{version('tensorflow')}"


def cache_directory() -> Path:
    """What benchmarks keep for the next time."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "aspira" / "bench"


def grpc_predict(model: Model) -> Endpoint:
    """Predict over gRPC, the input as `tensor_content` as TensorFlow's own client sends it."""
    from tensorflow.core.framework import types_pb2
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model.name
    tensor = request.inputs[model.input_name]
    tensor.dtype = types_pb2.DT_FLOAT
    for size in model.input.shape:
        tensor.tensor_shape.dim.add(size=size)
    tensor.tensor_content = model.input.tobytes()

    def is_right(answer: bytes) -> bool:
        output = predict_pb2.PredictResponse.FromString(answer).outputs[model.output_name]
        values = np.frombuffer(output.tensor_content, np.float32) if output.tensor_content else None
        return is_close(output.float_val if values is None else values, model=model)

    body = frame_message(request.SerializeToString())
    return Endpoint(Protocol.GRPC, _PREDICT, body=body, is_right=is_right)


def rest_predict(model: Model) -> Endpoint:
    """Predict over REST in row format."""

    def is_right(answer: bytes) -> bool:
        return is_close(json.loads(answer).get("predictions", ()), model=model)

    path = f"/v1/models/{model.name}:predict"
    body = json.dumps({"instances": model.input.tolist()}).encode()
    return Endpoint(Protocol.REST, path, body=body, is_right=is_right)


def echo_of(endpoint: Endpoint) -> Endpoint:
    """The same bytes sent to a server that returns them."""
    prefix_bytes = len(frame_message(b"")) if endpoint.protocol is Protocol.GRPC else 0
    payload = endpoint.body[prefix_bytes:]
    return Endpoint(
        endpoint.protocol,
        "/benchmark.Echo/Echo",
        body=endpoint.body,
        is_right=lambda answer: answer == payload,
    )


def is_close(values: object, *, model: Model) -> bool:
    """Whether they are the model's answer, in whatever shape."""
    found = np.asarray(values, np.float32).ravel()
    wanted = model.answer.ravel()
    return found.shape == wanted.shape and np.allclose(found, wanted, _TOLERANCE, _TOLERANCE / 10)
