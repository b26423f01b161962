"""How long a model's answers take while another model is loaded and warmed up, again and again."""

import shutil
import threading
import time
from pathlib import Path
from typing import Self

import requests

from load import Load, Outcome, apply_load
from models import Model, grpc_predict
from plan import aspira_command
from servers import CommandMaker, Ports, run_server
from serving import BenchOptions

_LOAD = Load(2, num_streams=4)
_NEIGHBOUR = "neighbour"


def measure_isolation(model: Model, *, loaded: Model, options: BenchOptions) -> str:
    """p99 of `model` with nothing else going on, and while versions of `loaded` come and go."""
    base_path = options.output / "isolation"
    shutil.rmtree(base_path, ignore_errors=True)
    base_path.mkdir(parents=True)
    config = options.output / "isolation.config"
    config.write_text(_config(model, base_path=base_path))
    log = options.output / "isolation.log"
    lines = []
    with run_server(_command(model, config=config), log=log) as running:
        apply_load(grpc_predict(model), port=running.ports.grpc, load=_LOAD, seconds=2)
        for number in range(1, options.num_rounds + 1):
            quiet = _measure(model, ports=running.ports, seconds=options.seconds)
            with _Loading(loaded, base_path=base_path, rest_port=running.ports.rest) as loading:
                busy = _measure(model, ports=running.ports, seconds=options.seconds)
            lines.append(
                f"  round {number}: p99 {quiet.p99_ms:.2f} ms quiet, {busy.p99_ms:.2f} ms during "
                f"{loading.num_loads} loads: ratio {busy.p99_ms / quiet.p99_ms:.2f} (target 1.3); "
                f"{quiet.requests_per_s:,.0f} and {busy.requests_per_s:,.0f} requests/s"
            )
    return "\n".join(lines)


def _measure(model: Model, *, ports: Ports, seconds: int) -> Outcome:
    return apply_load(grpc_predict(model), port=ports.grpc, load=_LOAD, seconds=seconds)


def _command(model: Model, *, config: Path) -> CommandMaker:
    def make_command(ports: Ports) -> list[str]:
        return [*aspira_command(model)(ports), f"--model_config_file={config}"]

    return make_command


def _config(model: Model, *, base_path: Path) -> str:
    served = {model.name: model.version_directory.parent, _NEIGHBOUR: base_path}
    entries = "".join(
        f'  config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" }}\n'
        for name, path in served.items()
    )
    return f"model_config_list {{\n{entries}}}\n"


class _Loading:
    """Publishes version after version within the block; each replaces the one before."""

    def __init__(self, model: Model, *, base_path: Path, rest_port: int) -> None:
        self._model = model
        self._base_path = base_path
        self._url = f"http://127.0.0.1:{rest_port}/v1/models/{_NEIGHBOUR}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self.num_loads = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _publish(self) -> None:
        while not self._stopping.is_set():
            version = int(time.time() * 10)
            partial = self._base_path / f"{version}.partial"
            shutil.copytree(self._model.version_directory, partial)
            partial.rename(self._base_path / str(version))
            while not self._is_available(version) and not self._stopping.wait(0.1):
                pass
            self.num_loads += 1

    def _is_available(self, version: int) -> bool:
        answer = requests.get(self._url, timeout=30).json()
        return any(
            (entry["version"], entry["state"]) == (str(version), "AVAILABLE")
            for entry in answer.get("model_version_status", ())
        )
