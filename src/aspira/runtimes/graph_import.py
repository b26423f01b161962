"""Brings a SavedModel's graph into TensorFlow at a fraction of what its own import costs.

`tf.graph_util.import_graph_def` makes a Python object of each operation and function, for those who
go on building. A session that is asked by names needs none of them. Making them costs more than the
import, holds the interpreter's lock, and leaves the garbage collector thousands of objects.
"""

from collections.abc import Iterable
from typing import Any

# TensorFlow has no types.
Graph = Any
GraphDef = Any
NodeDef = Any
SessionConfig = Any

# Calls of functions. All other ops that name functions branch, loop, map or differentiate.
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def import_graph(graph_def: GraphDef) -> Graph:
    """The graph of a SavedModel, for sessions; Python knows none of its operations.

    Raises:
        tf.errors.OpError: TensorFlow does not take it.
    """
    import tensorflow as tf

    graph = tf.Graph()
    # The lock is held as long as a call lasts: functions first, one by one, then what calls them.
    for function in graph_def.library.function:
        piece = type(graph_def)(versions=graph_def.versions)
        piece.library.function.append(function)
        _import_piece(piece, graph=graph)
    rest = type(graph_def)(versions=graph_def.versions, node=graph_def.node)
    rest.library.gradient.extend(graph_def.library.gradient)
    rest.library.registered_gradients.extend(graph_def.library.registered_gradients)
    _import_piece(rest, graph=graph)
    return graph


def _import_piece(piece: GraphDef, *, graph: Graph) -> None:
    # Not public, but what tf.graph_util.import_graph_def calls, in the same order.
    from tensorflow.python.client import pywrap_tf_session as c_api
    from tensorflow.python.framework import c_api_util

    options = c_api_util.ScopedTFImportGraphDefOptions()
    buffer = c_api.TF_NewBufferFromString(piece.SerializeToString())
    try:
        with graph._c_graph.get() as c_graph:  # noqa: SLF001
            results = c_api.TF_GraphImportGraphDefWithResults(c_graph, buffer, options.options)
            c_api_util.ScopedTFImportGraphDefResults(results)
    finally:
        c_api.TF_DeleteBuffer(buffer)


def fill_defaults(nodes: Iterable[NodeDef]) -> None:
    """Write out the attributes that files leave out because they have the default value."""
    from tensorflow.python.framework import op_def_registry

    for node in nodes:
        op_def = op_def_registry.get(node.op)
        for attr in () if op_def is None else op_def.attr:
            if attr.HasField("default_value") and attr.name not in node.attr:
                node.attr[attr.name].CopyFrom(attr.default_value)


def leave_out_idle_rewrites(config: SessionConfig, *, graph_def: GraphDef) -> None:
    """Turn off what of TensorFlow's optimizing a graph takes time and cannot change this graph.

    Without a GPU: moving tensors out of its memory. Without branches and loops: moving work into
    them, for which the graph is converted to MLIR and back several times.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import rewriter_config_pb2

    rewrites = config.graph_options.rewrite_options
    is_unsaid = rewrites.memory_optimization == rewriter_config_pb2.RewriterConfig.DEFAULT_MEM_OPT
    if is_unsaid and not tf.config.list_physical_devices("GPU"):
        rewrites.memory_optimization = rewriter_config_pb2.RewriterConfig.NO_MEM_OPT
    if _only_calls(graph_def):
        rewrites.disable_tfg_optimizer = True


def _only_calls(graph_def: GraphDef) -> bool:
    """Whether functions are used in no other way than to be called, by the usual ops."""
    from tensorflow.python.framework import op_def_registry

    functions = graph_def.library.function
    ops = {node.op for node in graph_def.node}
    ops.update(node.op for function in functions for node in function.node_def)
    definitions = [op_def_registry.get(op) for op in ops - _CALLS]
    return all(
        definition is not None and not any("func" in attr.type for attr in definition.attr)
        for definition in definitions
    )
