"""Runs a SavedModel in a loop with nothing around it, in each way that TensorFlow offers.

Usage: bare_tensorflow.py DIRECTORY INPUT.npy SECONDS. Each line of the input names a way to call
the model; it is answered with a line that holds the calls per second. `ready` comes first.
"""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

_WARMUP_S = 0.5
# As aspira.runtimes.tensorflow has it: smaller graphs run on the calling thread.
_MAX_NODES_ON_CALLING_THREAD = 512

Array = npt.NDArray[np.float32]
Call = Callable[[Array], Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """Names of the one input and the one output, as tensors of the graph."""

    feed: str
    fetch: str
    is_small: bool


def open_model(directory: str) -> tuple[tf.compat.v1.Session, Signature]:
    """A session with the model loaded as TensorFlow's manual has it."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], directory)
    signature = meta_graph.signature_def["serving_default"]
    (feed,) = signature.inputs.values()
    (fetch,) = signature.outputs.values()
    graph = meta_graph.graph_def
    num_nodes = len(graph.node) + sum(len(function.node_def) for function in graph.library.function)
    is_small = num_nodes <= _MAX_NODES_ON_CALLING_THREAD
    return session, Signature(feed.name, fetch=fetch.name, is_small=is_small)


def make_session_run(session: tf.compat.v1.Session, *, signature: Signature) -> Call:
    feed = session.graph.get_tensor_by_name(signature.feed)
    fetch = session.graph.get_tensor_by_name(signature.fetch)
    return lambda array: session.run(fetch, {feed: array})


def make_public_callable(session: tf.compat.v1.Session, *, signature: Signature) -> Call:
    call: Call = session.make_callable(signature.fetch, feed_list=[signature.feed])
    return call


def make_optimized_callable(session: tf.compat.v1.Session, *, signature: Signature) -> Call:
    """The callable that aspira.runtimes.tensorflow uses."""
    options = tf.compat.v1.RunOptions()
    if signature.is_small:
        options.inter_op_thread_pool = -1
    from tensorflow.core.protobuf import config_pb2

    call: Call = session._make_callable_from_options(  # noqa: SLF001
        config_pb2.CallableOptions(
            feed=[signature.feed], fetch=[signature.fetch], run_options=options
        )
    )
    return call


def measure_rate(call: Call, *, array: Array, seconds: float, num_threads: int) -> float:
    """Calls per second, of all threads together."""
    with ThreadPoolExecutor(num_threads) as pool:
        rates = [
            pool.submit(_count_calls, call, array=array, seconds=seconds)
            for _ in range(num_threads)
        ]
        return sum(rate.result() for rate in rates)


def _count_calls(call: Call, *, array: Array, seconds: float) -> float:
    num_calls = 0
    started_s = time.perf_counter()
    while (elapsed_s := time.perf_counter() - started_s) < seconds:
        call(array)
        num_calls += 1
    return num_calls / elapsed_s


def main() -> None:
    directory, input_file, seconds = sys.argv[1:]
    array: Array = np.load(input_file)
    session, signature = open_model(directory)
    optimized = make_optimized_callable(session, signature=signature)
    ways = {
        "session_run": (make_session_run(session, signature=signature), 1),
        "callable": (make_public_callable(session, signature=signature), 1),
        "optimized_callable": (optimized, 1),
        "optimized_callable_2": (optimized, 2),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        call, num_threads = ways[line.strip()]
        measure_rate(call, array=array, seconds=_WARMUP_S, num_threads=num_threads)
        rate = measure_rate(call, array=array, seconds=float(seconds), num_threads=num_threads)
        print(rate, flush=True)


if __name__ == "__main__":
    main()
