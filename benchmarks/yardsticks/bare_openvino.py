"""Runs a SavedModel through OpenVINO in a loop with nothing around it.

Usage: bare_openvino.py DIRECTORY INPUT.npy SECONDS. Lines in and out as bare_tensorflow.py has
them. Runs under the interpreter of the environment that has OpenVINO.
"""

import sys
import time
from collections.abc import Callable

import numpy as np
import openvino


def measure_latency_mode(model: openvino.Model, *, array: np.ndarray, seconds: float) -> float:
    """One run after the other, each with all cores."""
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
    return _count_calls(lambda: request.infer([array], share_inputs=True), seconds=seconds)


def measure_throughput_mode(model: openvino.Model, *, array: np.ndarray, seconds: float) -> float:
    """As many at once as OpenVINO finds best."""
    options = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "f32"}
    queue = openvino.AsyncInferQueue(openvino.Core().compile_model(model, "CPU", options))
    rate = _count_calls(lambda: queue.start_async([array], share_inputs=True), seconds=seconds)
    queue.wait_all()
    return rate


WAYS = {"openvino_latency": measure_latency_mode, "openvino_throughput": measure_throughput_mode}
_WARMUP_S = 0.5


def _count_calls(call: Callable[[], object], *, seconds: float) -> float:
    """Calls per second, warmed up first."""
    _count_until(time.perf_counter() + _WARMUP_S, call=call)
    started_s = time.perf_counter()
    num_calls = _count_until(started_s + seconds, call=call)
    return num_calls / (time.perf_counter() - started_s)


def _count_until(end_s: float, *, call: Callable[[], object]) -> int:
    num_calls = 0
    while time.perf_counter() < end_s:
        call()
        num_calls += 1
    return num_calls


def main() -> None:
    directory, input_file, seconds = sys.argv[1:]
    array = np.load(input_file)
    model = openvino.Core().read_model(directory)
    model.reshape(list(array.shape))
    print("ready", flush=True)
    for line in sys.stdin:
        print(WAYS[line.strip()](model, array=array, seconds=float(seconds)), flush=True)


if __name__ == "__main__":
    main()
