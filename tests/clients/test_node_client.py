"""A TensorFlow Serving client in another language: Node.js with stock grpc-js."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

from aspira.testing.saved_models import write_half_plus_two
from clients.proto_source import write_proto_sources
from system.server_process import ServerProcess

SOURCE = Path(__file__).parent / "node"

pytestmark = pytest.mark.skipif(
    shutil.which("npm") is None, reason="Node.js and npm are not installed"
)


@pytest.fixture(scope="module")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client, its packages installed, and the protos it reads."""
    directory = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "predict.mjs"):
        shutil.copy(SOURCE / name, directory)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=directory, check=True, timeout=100, capture_output=True)
    for file in (prediction_service_pb2.DESCRIPTOR, model_service_pb2.DESCRIPTOR):
        write_proto_sources(file, directory=directory / "protos")
    return directory


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_node_client_gets_its_predictions(
    listener: str, node_client: Path, tmp_path: Path
) -> None:
    base_path = tmp_path / "model"
    base_path.mkdir()
    write_half_plus_two(base_path / "7")
    flags = ("--model_name=half_plus_two", f"--model_base_path={base_path}")
    with ServerProcess(f"--listener={listener}", *flags, log=tmp_path / "log") as server:
        command = ["node", "predict.mjs", server.grpc_target, "protos"]
        done = subprocess.run(
            command, cwd=node_client, timeout=60, capture_output=True, text=True, check=True
        )
    seen = json.loads(done.stdout)
    assert seen["values"] == [2.5, 3.0, 4.5]
    assert seen["version"] == 7
    assert seen["unknown"] == {
        "code": "NOT_FOUND",
        "details": "Servable not found for request: Latest(nope)",
    }
    assert seen["states"] == [[7, "AVAILABLE"]]
    assert seen["many"] == [number / 2 + 2 for number in range(100)]
