"""One signature of a SavedModel as a graph of its own, which a compiler can be given.

The graph is cut at the signature's inputs, since a TF1 signature may feed any tensor. Each output
gets a node of its own, so that every output is a leaf and its name is known.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aspira.contracts.signatures import Signature, TensorSpec
from aspira.runtimes.graph_import import fill_defaults
from aspira.runtimes.saved_model import MetaGraph, Session, run_once

OUTPUT_PREFIX = "aspira_output_"

# Message classes are generated at TensorFlow's import, hence Any.
GraphDef = Any
NodeDef = Any


class StaysOnTensorflow(Exception):
    """A signature cannot be served by an accelerator; the text is the reason, for people."""


@dataclass(frozen=True, slots=True)
class SignatureGraph:
    """`graph_def` computes the outputs, nodes `aspira_output_0` and so on, from the inputs.

    `inputs` are the tensors to feed, each once, with the alias that feeds it; `outputs` are the
    aliases in the order of the output nodes.
    """

    graph_def: GraphDef
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]

    @property
    def output_nodes(self) -> list[str]:
        return [f"{OUTPUT_PREFIX}{index}" for index in range(len(self.outputs))]


def cut_graph(meta_graph: MetaGraph, *, signature: Signature) -> SignatureGraph:
    """What of the model's graph the signature needs. Variables are still variables.

    Raises:
        StaysOnTensorflow: the signature names tensors in a way that no compiler is given.
    """
    from tensorflow.core.framework import graph_pb2

    nodes = {node.name: node for node in meta_graph.graph_def.node}
    cut = graph_pb2.GraphDef(versions=meta_graph.graph_def.versions)
    for spec in signature.inputs.values():
        name = _placeholder_name(spec)
        nodes[name] = _make_placeholder(nodes.get(name), name=name, spec=spec)
    for index, spec in enumerate(signature.outputs.values()):
        name = f"{OUTPUT_PREFIX}{index}"
        nodes[name] = _make_identity(name, spec=spec)
    graph = SignatureGraph(
        cut,
        # Of several aliases for one tensor the last one feeds it, as in TensorFlow Serving.
        {spec.runtime_name: alias for alias, spec in signature.inputs.items()},
        tuple(signature.outputs),
    )
    cut.node.extend(_reachable(nodes, outputs=graph.output_nodes))
    fill_defaults(cut.node)
    cut.library.CopyFrom(meta_graph.graph_def.library)
    return graph


def freeze_variables(graph: SignatureGraph, *, session: Session) -> GraphDef:
    """The graph with each variable replaced by the value that it has in the session.

    Raises:
        StaysOnTensorflow: TensorFlow cannot replace them.
    """
    # The public function of tf.compat.v1.graph_util is the same under a deprecation notice.
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_from_session_graph,
    )
    from tensorflow.python.util import deprecation

    try:
        with deprecation.silence():
            return convert_variables_to_constants_from_session_graph(
                _Reader(session), graph.graph_def, graph.output_nodes
            )
    except Exception as error:
        # Graphs come in more kinds than its checks foresee; TensorFlow itself serves all of them.
        raise StaysOnTensorflow(f"its variables cannot be made constants: {error}") from error


class _Reader:
    """A session to those who only read variables; its graph has no Python objects to ask for."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, names: list[str]) -> list[Any]:
        return run_once(self._session, feeds={}, fetches=names)


def all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
    """Every node, those of the functions that are called included; a function counts once."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    seen: set[str] = set()
    waiting = [list(graph_def.node)]
    while waiting:
        for node in waiting.pop():
            yield node
            for name in _called_functions(node):
                if name in functions and name not in seen:
                    seen.add(name)
                    waiting.append(list(functions[name].node_def))


def _called_functions(node: NodeDef) -> Iterator[str]:
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name


def _placeholder_name(spec: TensorSpec) -> str:
    name, _, port = spec.runtime_name.partition(":")
    if not name or port not in {"", "0"}:
        raise StaysOnTensorflow(f"it feeds `{spec.runtime_name}`, which is no single tensor")
    return name


def _make_placeholder(node: NodeDef | None, *, name: str, spec: TensorSpec) -> NodeDef:
    from tensorflow.core.framework import node_def_pb2

    if node is not None and node.op == "Placeholder":
        return node
    placeholder = node_def_pb2.NodeDef(name=name, op="Placeholder")
    placeholder.attr["dtype"].type = spec.dtype.value
    shape = placeholder.attr["shape"].shape
    if spec.shape is None:
        shape.unknown_rank = True
    for size in spec.shape or ():
        shape.dim.add().size = -1 if size is None else size
    return placeholder


def _make_identity(name: str, *, spec: TensorSpec) -> NodeDef:
    from tensorflow.core.framework import node_def_pb2

    if not spec.runtime_name:
        raise StaysOnTensorflow("an output is no dense tensor")
    identity = node_def_pb2.NodeDef(name=name, op="Identity", input=[spec.runtime_name])
    identity.attr["T"].type = spec.dtype.value
    return identity


def _reachable(nodes: Mapping[str, NodeDef], *, outputs: Iterable[str]) -> list[NodeDef]:
    """The nodes that `outputs` depend on, control inputs included, in the order of `nodes`."""
    wanted: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in wanted:
            continue
        if name not in nodes:
            raise StaysOnTensorflow(f"it refers to `{name}`, which its graph lacks")
        wanted.add(name)
        waiting.extend(source.removeprefix("^").partition(":")[0] for source in nodes[name].input)
    return [node for name, node in nodes.items() if name in wanted]
