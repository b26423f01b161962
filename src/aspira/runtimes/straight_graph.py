"""Tells which signatures of a model only compute: straight ahead, from their inputs, in memory.

Such a run waits for nothing but the CPU, so a server may make it on the thread that must never
wait, if it is short. An op that is not named here may do anything: there are too many, and custom
ones, to say which of them never wait.
"""

from collections.abc import Mapping

from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import DataType
from aspira.runtimes.graph_review import find_writer
from aspira.runtimes.saved_model import MetaGraph
from aspira.runtimes.signature_graph import StaysOnTensorflow, all_nodes, cut_graph

_STRUCTURE = frozenset(
    {
        "Const",
        "DisableCopyOnRead",
        "Identity",
        "IdentityN",
        "NoOp",
        "PartitionedCall",
        "Placeholder",
        "PlaceholderWithDefault",
        "ReadVariableOp",
        "Snapshot",
        "StatefulPartitionedCall",
        "StopGradient",
        "VarHandleOp",
    }
)
_ELEMENTWISE = frozenset(
    {
        "Abs",
        "Add",
        "AddN",
        "AddV2",
        "BiasAdd",
        "Cast",
        "Ceil",
        "ClipByValue",
        "Cos",
        "Div",
        "DivNoNan",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Expm1",
        "Floor",
        "FloorDiv",
        "FloorMod",
        "Greater",
        "GreaterEqual",
        "IsFinite",
        "IsInf",
        "IsNan",
        "LeakyRelu",
        "Less",
        "LessEqual",
        "Log",
        "Log1p",
        "LogicalAnd",
        "LogicalNot",
        "LogicalOr",
        "Maximum",
        "Minimum",
        "Mul",
        "MulNoNan",
        "Neg",
        "NotEqual",
        "OnesLike",
        "Pow",
        "RealDiv",
        "Reciprocal",
        "Relu",
        "Relu6",
        "Round",
        "Rsqrt",
        "Select",
        "SelectV2",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Square",
        "SquaredDifference",
        "Sub",
        "Tanh",
        "ZerosLike",
    }
)
_SHAPING = frozenset(
    {
        "ConcatV2",
        "ExpandDims",
        "GatherV2",
        "Pack",
        "Rank",
        "Reshape",
        "ResourceGather",
        "Shape",
        "Size",
        "Slice",
        "Split",
        "SplitV",
        "Squeeze",
        "StridedSlice",
        "Transpose",
        "Unpack",
    }
)
_REDUCING = frozenset(
    {
        "All",
        "Any",
        "ArgMax",
        "ArgMin",
        "AvgPool",
        "BatchMatMulV2",
        "Conv2D",
        "DepthwiseConv2dNative",
        "FusedBatchNormV3",
        "LogSoftmax",
        "MatMul",
        "Max",
        "MaxPool",
        "Mean",
        "Min",
        "Prod",
        "Softmax",
        "Sum",
        "TopKV2",
    }
)
_STRAIGHT_OPS = _STRUCTURE | _ELEMENTWISE | _SHAPING | _REDUCING
# Their arrays hold pointers, so their size says nothing about the work.
_UNSIZED = frozenset({DataType.STRING, DataType.RESOURCE, DataType.VARIANT})


def find_straight_signatures(
    meta_graph: MetaGraph, *, signatures: Mapping[str, Signature]
) -> frozenset[str]:
    """The signatures that only compute. None if one writes variables, which readers wait for."""
    graphs = {}
    for name, signature in signatures.items():
        try:
            graphs[name] = cut_graph(meta_graph, signature=signature).graph_def
        except StaysOnTensorflow:
            # What is no plain graph of tensors may write, for all that is known.
            return frozenset()
    if find_writer(graphs):
        return frozenset()
    return frozenset(
        name
        for name, graph_def in graphs.items()
        if all(spec.dtype not in _UNSIZED for spec in signatures[name].inputs.values())
        and all(node.op in _STRAIGHT_OPS for node in all_nodes(graph_def))
    )
