from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

from aspira.runtimes.graph_import import fill_defaults, leave_out_idle_rewrites
from aspira.runtimes.saved_model import open_session, read_meta_graph, run_once

RewriterConfig = rewriter_config_pb2.RewriterConfig


def rewrites(graph_def: Any, *, config: Any = None) -> Any:
    config = config or config_pb2.ConfigProto()
    leave_out_idle_rewrites(config, graph_def=graph_def)
    return config.graph_options.rewrite_options


def traced(function: Any) -> Any:
    """The graph of a function that is called in it, which makes a library."""
    called = tf.function(function, autograph=False)
    outer = tf.function(lambda x: called(x), input_signature=[tf.TensorSpec([], tf.float32)])
    return outer.get_concrete_function().graph.as_graph_def()


def test_a_graph_of_calls_needs_no_work_moved_into_branches() -> None:
    chosen = rewrites(traced(lambda x: x + 1))
    assert chosen.disable_tfg_optimizer
    assert chosen.memory_optimization == RewriterConfig.NO_MEM_OPT


def test_a_graph_with_branches_is_rewritten_whole() -> None:
    graph_def = traced(lambda x: tf.cond(x > 0, lambda: x, lambda: -x))
    assert not rewrites(graph_def).disable_tfg_optimizer


def test_an_op_of_nobody_knows_what_is_rewritten_whole() -> None:
    graph_def = graph_pb2.GraphDef()
    graph_def.node.add(name="odd", op="NobodyKnows")
    assert not rewrites(graph_def).disable_tfg_optimizer


def test_what_the_user_asks_for_is_kept() -> None:
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.memory_optimization = RewriterConfig.MANUAL
    chosen = rewrites(graph_pb2.GraphDef(), config=config)
    assert chosen.memory_optimization == RewriterConfig.MANUAL


def test_with_a_gpu_its_memory_is_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    chosen = rewrites(graph_pb2.GraphDef())
    assert chosen.memory_optimization == RewriterConfig.DEFAULT_MEM_OPT


def test_defaults_that_a_file_leaves_out() -> None:
    graph_def = graph_pb2.GraphDef()
    node = graph_def.node.add(name="product", op="MatMul")
    node.attr["transpose_b"].b = True
    graph_def.node.add(name="odd", op="NobodyKnows")
    fill_defaults(graph_def.node)
    assert node.attr["transpose_b"].b
    assert "transpose_a" in node.attr
    assert "T" not in node.attr


def test_an_attribute_of_a_later_tensorflow_is_no_obstacle(half_plus_two: Path) -> None:
    meta_graph = read_meta_graph(half_plus_two, tags=("serve",))
    (node, *_) = (node for node in meta_graph.graph_def.node if node.op == "VarHandleOp")
    node.attr["of_tomorrow"].b = True
    open_session(half_plus_two, meta_graph=meta_graph, config=None).close()


def test_functions_that_call_others_branch_and_are_differentiated(tmp_path: Path) -> None:
    class Module(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable(3.0)
            self.square = tf.function(lambda x: x * x * self.weight)

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32, name="x")])
        def serve(self, x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.cond(x > 0, lambda: self.square(x), lambda: self.square(-x) + 1)
            return {"y": y, "slope": tape.gradient(y, x)}

    module = Module()
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    meta_graph = read_meta_graph(tmp_path, tags=("serve",))
    signature = meta_graph.signature_def["serving_default"]
    session = open_session(tmp_path, meta_graph=meta_graph, config=None)
    fetches = [signature.outputs[alias].name for alias in ("y", "slope")]
    for x, expected in ((2.0, [12, 12]), (-2.0, [13, -12])):
        feeds = {signature.inputs["x"].name: np.float32(x)}
        assert run_once(session, feeds=feeds, fetches=fetches) == expected
    session.close()
