from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from aspira.contracts.events import EventBus
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.runtimes.saved_model import MetaGraph
from aspira.runtimes.straight_graph import find_straight_signatures
from aspira.runtimes.tensorflow import TensorflowLoader

v1: Any = tf.compat.v1


def signature_of(x: Any, y: Any) -> Signature:
    return Signature(
        {"x": TensorSpec(DataType(x.dtype.as_datatype_enum), None, x.name)},
        {"y": TensorSpec(DataType(y.dtype.as_datatype_enum), None, y.name)},
    )


def make_graph(*computations: Callable[[Any], Any], dtype: Any = tf.float32) -> Any:
    """A graph with a signature for each computation of `x`: its MetaGraph and the signatures."""
    signatures = {}
    with tf.Graph().as_default() as graph:
        for index, compute in enumerate(computations):
            x = v1.placeholder(dtype, name=f"x{index}")
            signatures[f"s{index}"] = signature_of(x, compute(x))
        meta_graph: MetaGraph = v1.train.export_meta_graph(graph=graph)
    return meta_graph, signatures


def read_variable(x: Any) -> Any:
    return x + v1.get_variable("v", initializer=2.0, use_resource=True)


def write_variable(x: Any) -> Any:
    with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
        variable = v1.get_variable("v", initializer=2.0, use_resource=True)
    return variable.assign_add(tf.reduce_sum(x))


def call_function(x: Any) -> Any:
    return tf.function(lambda z: tf.nn.softmax(z) * 2.0)(x)


def wait_for_a_queue(x: Any) -> Any:
    queue = v1.FIFOQueue(1, [tf.float32], shapes=[[]])
    return x + queue.dequeue()


def loop_within_a_function(x: Any) -> Any:
    def compute(z: Any) -> Any:
        return tf.while_loop(lambda i: i < tf.reduce_sum(z), lambda i: (i + 1.0,), (0.0,))[0]

    return tf.function(compute)(x)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x * 0.5 + 2.0,
        lambda x: tf.nn.relu(tf.matmul(x, np.ones((4, 2), np.float32))),
        lambda x: tf.argmax(x, axis=1),
        read_variable,
        call_function,
    ],
)
def test_what_only_computes_is_straight(compute: Callable[[Any], Any]) -> None:
    meta_graph, signatures = make_graph(compute)
    assert find_straight_signatures(meta_graph, signatures=signatures) == {"s0"}


@pytest.mark.parametrize(
    "compute",
    [
        wait_for_a_queue,
        loop_within_a_function,
        lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x, lambda: -x),
        lambda x: v1.py_func(lambda z: z, [x], tf.float32),
        lambda x: x + tf.random.uniform([]),
        lambda x: tf.fill([tf.cast(tf.reduce_sum(x), tf.int32)], 1.0),
        lambda x: tf.raw_ops.Print(input=x, data=[x]),
        lambda x: tf.strings.length(tf.io.read_file(tf.strings.as_string(x))),
    ],
)
def test_what_may_wait_or_take_any_time_is_not(compute: Callable[[Any], Any]) -> None:
    meta_graph, signatures = make_graph(compute, lambda x: x + 1.0)
    # Others of the model are.
    assert find_straight_signatures(meta_graph, signatures=signatures) == {"s1"}


def test_no_signature_is_straight_beside_one_that_writes_variables() -> None:
    meta_graph, signatures = make_graph(read_variable, write_variable)
    assert find_straight_signatures(meta_graph, signatures=signatures) == set()


def test_strings_do_not_tell_their_size() -> None:
    meta_graph, signatures = make_graph(tf.identity, dtype=tf.string)
    assert find_straight_signatures(meta_graph, signatures=signatures) == set()


def test_a_signature_of_no_plain_tensors_may_do_anything() -> None:
    meta_graph, signatures = make_graph(tf.identity)
    sparse = Signature({}, {"y": TensorSpec(DataType.FLOAT, None, "")})
    found = find_straight_signatures(meta_graph, signatures={**signatures, "sparse": sparse})
    assert found == set()


def test_a_served_model_tells_of_it(half_plus_two: Path, sampler: Path) -> None:
    found = {}
    for path in (half_plus_two, sampler):
        loader = TensorflowLoader(
            path, options=TensorflowOptions(), warmup=WarmupOptions(), events=EventBus()
        )
        servable = loader.load()
        found[path] = servable.straight_signatures
        servable.unload()
    assert found[half_plus_two] == {"serving_default"}
    assert found[sampler].isdisjoint({"texts", "look_up"})
