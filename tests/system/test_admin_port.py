"""The admin port of real servers: open before models load, until the process ends."""

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from aspira.settings import DEFAULT_METRICS_PATH
from aspira.testing.saved_models import write_counter, write_half_plus_two
from certificates import make_certificate, write_ssl_config
from system.server_process import ServerProcess, free_ports, sockets

LISTENERS = pytest.mark.parametrize("listener", ["envoy", "portable"])
TIMEOUT_S = 30


class AdminPort:
    """A client of one."""

    def __init__(self, *, scheme: str = "http") -> None:
        (self.port,) = free_ports(1)
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    @property
    def flag(self) -> str:
        return f"--admin_port={self.port}"

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(f"{self.url}{path}", timeout=TIMEOUT_S, **options)

    def post(self, path: str, **options: Any) -> requests.Response:
        return requests.post(f"{self.url}{path}", timeout=TIMEOUT_S, **options)

    def wait_open(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self.get("/healthz")
            except requests.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("half_plus_two")
    write_half_plus_two(directory / "1")
    return directory


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that counts, as long as it is told to."""
    directory = tmp_path_factory.mktemp("endless")
    write_counter(directory / "1")
    return directory


@LISTENERS
def test_it_is_open_while_models_load_and_the_other_ports_are_not(
    listener: str, endless: Path, tmp_path: Path
) -> None:
    shutil.copytree(endless, tmp_path / "m")
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name = "m"
    request.inputs["n"].CopyFrom(tf.make_tensor_proto(tf.constant(10**15, tf.int64)))
    extra = tmp_path / "m" / "1" / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        writer.write(log.SerializeToString())
    admin = AdminPort()
    server = ServerProcess(
        f"--listener={listener}",
        admin.flag,
        f"--model_base_path={tmp_path / 'm'}",
        log=tmp_path / "log",
    )
    server.start()
    try:
        admin.wait_open()
        # The load never ends, so whenever it is reached, it lasts.
        while 'state="loading"' not in admin.get(DEFAULT_METRICS_PATH).text:
            time.sleep(0.01)
        answer = admin.get("/readyz")
        assert (answer.status_code, answer.json()) == (
            503,
            {
                "status": "starting",
                "unavailable": {"default": "{name: default} is still loading"},
            },
        )
        assert admin.get("/healthz").json() == {"status": "alive"}
        (model,) = admin.get("/v1/models").json()["models"]
        assert [v["state"] for v in model["model_version_status"]] == ["LOADING"]
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{server.rest_url}/healthz", timeout=TIMEOUT_S)
    finally:
        server.kill()


@LISTENERS
def test_it_answers_while_the_server_shuts_down(
    listener: str, endless: Path, tmp_path: Path
) -> None:
    admin = AdminPort()
    flags = (f"--listener={listener}", admin.flag, f"--model_base_path={endless}")
    with ServerProcess(*flags, "--shutdown_grace_seconds=3", log=tmp_path / "log") as server:
        assert admin.get("/readyz").json() == {"status": "ready"}
        url = f"{server.rest_url}/v1/models/default:predict"
        with pytest.raises(requests.ReadTimeout):
            requests.post(url, json={"inputs": 10**15}, timeout=0.1)
        # Its client has left, but the run goes on, and with it the version's last lease.
        server.signal(signal.SIGTERM)
        assert server.wait_for_line("Shutting down")
        answer = admin.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "shutting down"})
        assert admin.get("/healthz").status_code == 200
        assert server.wait() == 0
    with pytest.raises(requests.ConnectionError):
        admin.get("/healthz")


def test_models_are_reloaded_through_it_alone(base_path: Path, tmp_path: Path) -> None:
    admin = AdminPort()
    flags = (admin.flag, f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        entry = {"name": "other", "base_path": str(base_path), "model_platform": "tensorflow"}
        body = json.dumps({"model_config_list": {"config": [entry]}})
        refused = requests.post(f"{server.rest_url}/v1/config:reload", data=body, timeout=TIMEOUT_S)
        assert refused.status_code == 400
        answer = admin.post("/v1/config:reload", data=body)
        assert [model["name"] for model in answer.json()["models"]] == ["other"]
        url = f"{server.rest_url}/v1/models/other:predict"
        predicted = requests.post(url, json={"instances": [1.0]}, timeout=TIMEOUT_S)
        assert predicted.json() == {"predictions": [2.5]}


@LISTENERS
def test_a_port_that_is_taken_is_a_plain_refusal(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    with sockets(1) as (taken,):
        taken.listen()
        port = taken.getsockname()[1]
        server = ServerProcess(
            f"--listener={listener}",
            f"--admin_port={port}",
            f"--model_base_path={base_path}",
            log=tmp_path / "log",
        )
        server.start()
        try:
            assert server.wait() == 255
            said = server.output() + server.stdout()
        finally:
            server.kill()
    assert f"Cannot listen on 127.0.0.1 port {port}" in said
    assert "Choose another with --admin_port" in said
    assert "Traceback" not in said


@LISTENERS
def test_it_is_encrypted_as_the_other_ports_are(
    listener: str, base_path: Path, tmp_path: Path
) -> None:
    authority = make_certificate(tmp_path, name="authority")
    certificate = make_certificate(tmp_path, name="server", issuer=authority)
    client = make_certificate(tmp_path, name="client", issuer=authority)
    config = write_ssl_config(
        tmp_path / "ssl.config",
        key=certificate.key,
        cert=certificate.cert,
        custom_ca=authority.cert,
        client_verify=True,
    )
    admin = AdminPort(scheme="https")
    with ServerProcess(
        f"--listener={listener}",
        admin.flag,
        f"--ssl_config_file={config}",
        f"--model_base_path={base_path}",
        log=tmp_path / "log",
        scheme="https",
    ):
        trusted = str(authority.cert_file)
        shown = (str(client.cert_file), str(client.key_file))
        # As a kubelet's probe has no certificate to show.
        assert admin.get("/readyz", verify=trusted).json() == {"status": "ready"}
        assert admin.get("/v1/models", verify=trusted).status_code == 403
        assert admin.get("/v1/models", verify=trusted, cert=shown).status_code == 200
