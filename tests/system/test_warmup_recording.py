"""From live traffic to a warmed-up version: recorded by the command, replayed by the server."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from aspira.settings import DEFAULT_METRICS_PATH
from aspira.testing.saved_models import write_half_plus_two
from system.server_process import ServerProcess, free_ports

TIMEOUT_S = 60
NUM_SHAPES = 4


def ask(server: ServerProcess, *, num_rows: int) -> None:
    """One prediction over each protocol; the second has twice the rows."""
    url = f"{server.rest_url}/v1/models/m:predict"
    requests.post(url, json={"instances": [1.0] * num_rows}, timeout=TIMEOUT_S).raise_for_status()
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(num_rows * 2, np.float32)))
    with grpc.insecure_channel(server.grpc_target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        stub.Predict(request, timeout=TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_version_is_warmed_up_with_what_was_recorded(listener: str, tmp_path: Path) -> None:
    base_path = tmp_path / "m"
    write_half_plus_two(base_path / "1")
    (admin_port,) = free_ports(1)
    recorded = tmp_path / "tf_serving_warmup_requests"
    with ServerProcess(
        f"--listener={listener}",
        f"--admin_port={admin_port}",
        "--model_name=m",
        f"--model_base_path={base_path}",
        log=tmp_path / "log",
    ) as server:
        command = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("aspira")),
                *("warmup", "record", f"--admin=http://127.0.0.1:{admin_port}", "--model=m"),
                *(f"--num_records={NUM_SHAPES}", "--num_records_per_shape=1"),
                f"--output={recorded}",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.wait_for_line("Recording requests of model m, with all that they hold")
        for num_rows in (1, 4):
            for _ in range(2):
                ask(server, num_rows=num_rows)
        _, said = command.communicate(timeout=TIMEOUT_S)
        assert command.returncode == 0, said
        assert f"Wrote {NUM_SHAPES} records, of {NUM_SHAPES} combinations" in said
        assert f"{base_path}/VERSION/assets.extra/tf_serving_warmup_requests" in said

        staging = tmp_path / "staging"
        shutil.copytree(base_path / "1", staging)
        (staging / "assets.extra").mkdir()
        shutil.copy(recorded, staging / "assets.extra")
        staging.rename(base_path / "2")
        read = f'model_warmup_records_read{{model_path="{base_path}/2",status="OK"}} {NUM_SHAPES}\n'
        while (
            read
            not in requests.get(f"{server.rest_url}{DEFAULT_METRICS_PATH}", timeout=TIMEOUT_S).text
        ):
            time.sleep(0.05)
