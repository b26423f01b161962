"""MobileNetV2 through the server with OpenVINO, beside TensorFlow's bare session, in one run.

    .venv/bin/python benchmarks/accelerators.py [ROUNDS [SECONDS]]

Rates are requests a second over gRPC, one image each; the load generator is on the same machine.
In each round all are measured in turn. On a machine that does other work only the best round says
anything, and the median shows how far that is from it.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE, Popen

# TensorFlow's chatter would bury the figures. Set before anything imports it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from endpoints import Endpoint, check_endpoint
from load import Load, apply_load
from models import Model, grpc_predict, prepare_models
from servers import Ports, run_program, run_server

_YARDSTICK = Path(__file__).parent / "yardsticks" / "bare_tensorflow.py"
_BARE_WAYS = ("session_run", "optimized_callable")
_PRECISIONS = ("f32", "bf16")
_IN_FLIGHT = (1, 2, 4)

Measure = Callable[[], float]


def main() -> None:
    num_rounds, seconds = (*(int(text) for text in sys.argv[1:]), 3, 3)[:2]
    with ExitStack() as running, tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log"
        (model,) = (each for each in prepare_models(log) if each.name == "mobilenet")
        measures = _start_bare(model, seconds=seconds, running=running)
        for precision in _PRECISIONS:
            measures |= _start_server(
                model, precision=precision, seconds=seconds, log=log, running=running
            )
        rates: dict[str, list[float]] = {title: [] for title in measures}
        for _ in range(num_rounds):
            for title, measure in measures.items():
                rates[title].append(measure())
        _report(rates)


def _start_bare(model: Model, *, seconds: int, running: ExitStack) -> dict[str, Measure]:
    command = [sys.executable, str(_YARDSTICK), str(model.version_directory)]
    process = running.enter_context(
        run_program([*command, str(model.input_file), str(seconds)], stdout=PIPE, stderr=DEVNULL)
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return {f"bare TensorFlow, {way}": lambda way=way: _ask(process, way=way) for way in _BARE_WAYS}


def _ask(process: "Popen[bytes]", *, way: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{way}\n".encode())
    process.stdin.flush()
    return float(process.stdout.readline())


def _start_server(
    model: Model, *, precision: str, seconds: int, log: Path, running: ExitStack
) -> dict[str, Measure]:
    def make_command(ports: Ports) -> list[str]:
        return [
            str(Path(sys.executable).with_name("aspira")),
            "serve",
            "--host=127.0.0.1",
            f"--port={ports.grpc}",
            "--rest_api_port=0",
            f"--model_name={model.name}",
            f"--model_base_path={model.version_directory.parent}",
            "--accelerator=openvino",
            f"--precision={precision}",
        ]

    server = running.enter_context(run_server(make_command, log=log))
    endpoint = check_endpoint(grpc_predict(model), port=server.ports.grpc)

    def measure(num_in_flight: int) -> float:
        load = Load(1, num_streams=num_in_flight)
        return _rate(endpoint, port=server.ports.grpc, load=load, seconds=seconds)

    return {
        f"server, {precision}, {number} in flight": lambda number=number: measure(number)
        for number in _IN_FLIGHT
    }


def _rate(endpoint: Endpoint, *, port: int, load: Load, seconds: int) -> float:
    return apply_load(endpoint, port=port, load=load, seconds=seconds).requests_per_s


def _report(rates: dict[str, list[float]]) -> None:
    limit = max(rates[f"bare TensorFlow, {_BARE_WAYS[0]}"])
    print(f"load average {os.getloadavg()[0]:.1f}")
    for title, found in rates.items():
        best = max(found)
        print(
            f"{title:40} best {best:6.0f}/s  median {median(found):6.0f}/s  {best / limit:5.1f} x"
        )


if __name__ == "__main__":
    main()
