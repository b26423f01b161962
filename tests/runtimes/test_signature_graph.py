from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.runtimes.graph_review import find_state, find_writer
from aspira.runtimes.saved_model import open_session, read_meta_graph
from aspira.runtimes.signature_graph import (
    SignatureGraph,
    StaysOnTensorflow,
    all_nodes,
    cut_graph,
    freeze_variables,
)


def floats(name: str) -> TensorSpec:
    return TensorSpec(DataType.FLOAT, (None,), name)


class OldModel:
    """A TF1 graph: text is split into numbers, weighed by a variable, counted in another."""

    def __init__(self, directory: Path) -> None:
        graph = tf.Graph()
        with graph.as_default(), tf.compat.v1.Session(graph=graph) as session:
            text = tf.compat.v1.placeholder(tf.string, [None], name="text")
            parsed = tf.strings.to_number(text, name="parsed")
            weight = tf.compat.v1.Variable(3.0, name="weight", use_resource=False)
            weighed = tf.multiply(parsed, weight, name="weighed")
            count = tf.compat.v1.Variable(0.0, name="count", use_resource=False)
            tf.compat.v1.assign_add(count, 1.0, name="counted")
            tf.split(weighed, 2, name="halves")
            session.run(tf.compat.v1.global_variables_initializer())
            builder = tf.compat.v1.saved_model.Builder(str(directory))
            builder.add_meta_graph_and_variables(session, ["serve"])
            builder.save()
        self.meta_graph = read_meta_graph(directory, tags=("serve",))
        self.session = open_session(directory, meta_graph=self.meta_graph, config=None)

    def cut(self, *, feed: str, fetch: str) -> SignatureGraph:
        signature = Signature({"in": floats(feed)}, {"out": floats(fetch)})
        return cut_graph(self.meta_graph, signature=signature)


@pytest.fixture(scope="module")
def old_model(tmp_path_factory: pytest.TempPathFactory) -> OldModel:
    return OldModel(tmp_path_factory.mktemp("old") / "1")


def names(graph: SignatureGraph) -> set[str]:
    return {node.name for node in graph.graph_def.node}


def test_a_graph_is_cut_where_it_is_fed(old_model: OldModel) -> None:
    graph = old_model.cut(feed="parsed:0", fetch="weighed:0")
    assert "text" not in names(graph)
    (fed,) = (node for node in graph.graph_def.node if node.name == "parsed")
    assert fed.op == "Placeholder"
    assert find_state(graph.graph_def, writer="") == ""
    frozen = freeze_variables(graph, session=old_model.session)
    assert not any("Variable" in node.op for node in frozen.node)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.graph_util.import_graph_def(frozen, name="")
        (result,) = session.run([f"{graph.output_nodes[0]}:0"], {"parsed:0": [1, 2]})
    np.testing.assert_array_equal(result, np.float32([3, 6]))


def test_an_input_may_be_an_output(old_model: OldModel) -> None:
    graph = old_model.cut(feed="parsed:0", fetch="parsed:0")
    assert names(graph) == {"parsed", "aspira_output_0"}


def test_old_variables_are_state_where_they_are_written(old_model: OldModel) -> None:
    reading = old_model.cut(feed="parsed:0", fetch="weighed:0").graph_def
    writing = old_model.cut(feed="parsed:0", fetch="counted:0").graph_def
    assert find_writer({"read": reading}) == ""
    assert find_writer({"read": reading, "write": writing}) == "write"
    assert "changes" in find_state(reading, writer="write")
    assert find_state(writing, writer="") == "its op AssignAdd has state"


@pytest.mark.parametrize(
    ("feed", "fetch", "reason"),
    [
        ("halves:1", "weighed:0", "it feeds `halves:1`"),
        ("", "weighed:0", "it feeds ``"),
        ("parsed:0", "", "an output is no dense tensor"),
        ("parsed:0", "nothing:0", "it refers to `nothing`"),
    ],
)
def test_what_cannot_be_cut(old_model: OldModel, feed: str, fetch: str, reason: str) -> None:
    with pytest.raises(StaysOnTensorflow, match=reason):
        old_model.cut(feed=feed, fetch=fetch)


def test_nodes_of_functions_count_where_they_are_called() -> None:
    inner = tf.function(lambda x: tf.random.uniform(tf.shape(x)))
    outer = tf.function(lambda x: tf.identity(inner(x)) + inner(x))
    graph_def = outer.get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def()
    ops = [node.op for node in all_nodes(graph_def)]
    assert ops.count("RandomUniform") == 1
    assert find_state(graph_def, writer="") == "its op RandomUniform has state"


def make_graph(compute: Callable[[Any], Any], *, dtype: tf.DType = tf.float32) -> Any:
    function = tf.function(compute).get_concrete_function(tf.TensorSpec([None], dtype))
    return function.graph.as_graph_def()


def test_an_op_that_nobody_knows() -> None:
    graph_def = make_graph(lambda x: x * 2)
    graph_def.node.add(name="own", op="MyOp")
    assert find_state(graph_def, writer="") == "its op MyOp is unknown"
