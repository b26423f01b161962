from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from aspira.runtimes.graph_review import find_openvino_difference, find_xla_difference

I32, I64 = tf.int32, tf.int64


def make_graph(compute: Callable[[Any], Any], *, dtype: tf.DType) -> Any:
    function = tf.function(compute).get_concrete_function(tf.TensorSpec([None], dtype))
    return function.graph.as_graph_def()


@pytest.mark.parametrize(
    ("compute", "dtype"),
    [
        (lambda x: tf.nn.softmax(x) * 2, tf.float32),
        (lambda x: x // 2, I32),
        (lambda x: tf.cast(x, tf.float32) / 255, tf.uint8),
        (lambda x: tf.cast(x, I64), I32),
        (lambda x: tf.argmax(x), tf.float32),
        (lambda x: tf.reshape(x, [tf.shape(x)[0] // 2, 2]), tf.float32),
        (lambda x: tf.equal(x, 2**31 - 1), I64),
    ],
)
def test_nothing_is_said_of_what_computes_alike(compute: Any, dtype: tf.DType) -> None:
    graph_def = make_graph(compute, dtype=dtype)
    assert find_openvino_difference(graph_def) == ""
    assert find_xla_difference(graph_def) == ""


@pytest.mark.parametrize(
    ("compute", "dtype", "openvino", "xla"),
    [
        (lambda x: x + 1, I64, "computes in int64", ""),
        (lambda x: -x, tf.int8, "computes in int8", ""),
        (lambda x: tf.reduce_sum(x), tf.uint8, "computes in uint8", ""),
        (lambda x: tf.cast(x, I64), tf.float32, "casts float to 64 bits", ""),
        (lambda x: tf.equal(x, 2**31), I64, "a constant that needs 64 bits", ""),
        (lambda x: 7 // x, I32, "FloorDiv refuses", "FloorDiv refuses"),
        (lambda x: x % 0, I32, "FloorMod refuses", "FloorMod refuses"),
        (lambda x: tf.gather([1.0, 2.0], x), I32, "", "refuses an index out of range"),
        (lambda x: tf.cast(x, tf.complex64), tf.float32, "complex64", ""),
        (lambda x: tf.strings.as_string(x), tf.float32, "string", "string"),
    ],
)
def test_what_may_differ_is_named(compute: Any, dtype: tf.DType, openvino: str, xla: str) -> None:
    graph_def = make_graph(compute, dtype=dtype)
    for text, found in (
        (openvino, find_openvino_difference(graph_def)),
        (xla, find_xla_difference(graph_def)),
    ):
        assert text in found
        assert bool(text) == bool(found)


def test_a_constant_of_one_function_is_not_taken_for_an_argument_of_another() -> None:
    @tf.function
    def divide(a: Any, by: Any) -> Any:
        return a // by

    graph_def = make_graph(lambda x: divide(x, tf.constant(2, name="by")) + divide(x, x), dtype=I32)
    assert "divide by zero" in find_openvino_difference(graph_def)
