"""Finds what an accelerator would compute differently from TensorFlow, before anything is compiled.

Comparing outputs on samples cannot find all of it: a variable that changes later, a number that
overflows only for some requests, an index out of range. So whatever may differ for *some* request
keeps a signature on TensorFlow, and the reason is told. What OpenVINO does was tried with 2026.4:
it narrows int64 to int32, saturates small integers where TensorFlow wraps, computes doubles as
floats and checks no indices.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from aspira.contracts.tensors import DataType
from aspira.runtimes.signature_graph import GraphDef, NodeDef, all_nodes

# Stateful by TensorFlow's book, harmless here: they read a variable or call a function.
_READING_OPS = frozenset(
    {
        "VarHandleOp",
        "ReadVariableOp",
        "DisableCopyOnRead",
        "ResourceGather",
        "ResourceGatherNd",
        "Variable",
        "VariableV2",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "Placeholder",
        "PlaceholderV2",
        "If",
        "While",
        "Case",
    }
)
_WRITING_PREFIXES = (
    "Assign",
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceScatter",
    "ResourceStridedSlice",
    "ResourceCountUpTo",
)
_CONTROL_FLOW = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})
_FUNCTIONAL_CONTROL_FLOW = frozenset(
    {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"}
)
# TensorFlow refuses a request for the values of their inputs; compilers do not look.
_CHECKING_OPS = frozenset(
    {
        "Bincount",
        "CheckNumerics",
        "CheckNumericsV2",
        "Cholesky",
        "DenseBincount",
        "GatherNd",
        "InTopK",
        "InTopKV2",
        "LinearSolve",
        "MatrixInverse",
        "MatrixSolve",
        "MatrixTriangularSolve",
        "ResourceGatherNd",
        "ScatterNd",
        "SegmentMax",
        "SegmentMean",
        "SegmentSum",
        "SparseDenseCwiseMul",
        "SparseFillEmptyRows",
        "SparseReshape",
        "SparseSegmentMean",
        "SparseSegmentSqrtN",
        "SparseSegmentSum",
        "SparseTensorDenseMatMul",
        "SparseToDense",
        "TensorScatterAdd",
        "TensorScatterMax",
        "TensorScatterMin",
        "TensorScatterSub",
        "TensorScatterUpdate",
    }
)
_GATHERS = frozenset({"Gather", "GatherV2", "ResourceGather"})
_DIVISIONS = frozenset({"Div", "FloorDiv", "TruncateDiv", "Mod", "FloorMod", "TruncateMod"})
_ARITHMETIC = _DIVISIONS | {
    "Abs",
    "Add",
    "AddN",
    "AddV2",
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "BiasAdd",
    "Conv2D",
    "Cumprod",
    "Cumsum",
    "Einsum",
    "LeftShift",
    "MatMul",
    "Mean",
    "Mul",
    "Neg",
    "Pow",
    "Prod",
    "Range",
    "RightShift",
    "Square",
    "SquaredDifference",
    "Sub",
    "Sum",
}
_SMALL = frozenset({DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16})
_WIDE = frozenset({DataType.INT64, DataType.UINT32, DataType.UINT64})
_INTEGERS = _SMALL | _WIDE | {DataType.INT32}
_INT32 = (-(2**31), 2**31 - 1)

Finding = Callable[[NodeDef], str]
Constants = Mapping[str, Any]


def find_writer(graphs: Mapping[str, GraphDef]) -> str:
    """The first signature whose graph changes a variable; empty if none does."""
    for name, graph_def in graphs.items():
        if any(_is_writing(node) for node in all_nodes(graph_def)):
            return name
    return ""


def find_state(graph_def: GraphDef, *, writer: str) -> str:
    """Why the graph's answers may change from run to run; empty if they cannot.

    `writer` is a signature of the same model that changes variables.
    """
    for node in all_nodes(graph_def):
        if node.op in {"VarHandleOp", "VariableV2", "Variable"} and writer:
            return f"it reads variables, which signature `{writer}` changes"
        definition = _definition(node.op)
        if definition is None:
            return f"its op {node.op} is unknown"
        if _is_writing(node) or (definition.is_stateful and node.op not in _READING_OPS):
            return f"its op {node.op} has state"
    return ""


def find_openvino_difference(graph_def: GraphDef) -> str:
    """Why OpenVINO may answer otherwise than TensorFlow; empty if nothing is known.

    Gathers are not named: `aspira.runtimes.gather_guard` checks their indices.
    """
    constants = _constants(graph_def)
    return _first_finding(
        graph_def,
        findings=(
            _finds_control_flow(_CONTROL_FLOW | _FUNCTIONAL_CONTROL_FLOW),
            _finds_dtype(
                {
                    DataType.STRING,
                    DataType.DOUBLE,
                    DataType.COMPLEX64,
                    DataType.COMPLEX128,
                    DataType.VARIANT,
                }
            ),
            _find_check,
            _find_integer_arithmetic,
            _find_wide_value,
            lambda node: _find_division(node, constants=constants),
        ),
    )


def find_xla_difference(graph_def: GraphDef) -> str:
    """Why XLA may answer otherwise than TensorFlow: it checks no values, and knows no strings."""
    constants = _constants(graph_def)
    return _first_finding(
        graph_def,
        findings=(
            _finds_control_flow(_CONTROL_FLOW),
            _finds_dtype({DataType.STRING, DataType.VARIANT}),
            _find_check,
            lambda node: _find_gather(node, constants=constants),
            lambda node: _find_division(node, constants=constants),
        ),
    )


def _first_finding(graph_def: GraphDef, *, findings: Iterable[Finding]) -> str:
    for node in all_nodes(graph_def):
        for find in findings:
            if text := find(node):
                return text
    return ""


def _finds_control_flow(ops: frozenset[str]) -> Finding:
    return lambda node: f"it has control flow ({node.op})" if node.op in ops else ""


def _finds_dtype(refused: set[DataType]) -> Finding:
    def find(node: NodeDef) -> str:
        for value in node.attr.values():
            for number in (value.type, *value.list.type):
                if number in refused:
                    return f"its op {node.op} works on {DataType(number).short_name}"
        return ""

    return find


def _find_check(node: NodeDef) -> str:
    return f"its op {node.op} refuses some values" if node.op in _CHECKING_OPS else ""


def _find_integer_arithmetic(node: NodeDef) -> str:
    dtype = node.attr["T"].type if "T" in node.attr else 0
    if node.op in _ARITHMETIC and dtype in _SMALL | _WIDE:
        return f"its op {node.op} computes in {DataType(dtype).short_name}"
    return ""


def _find_wide_value(node: NodeDef) -> str:
    """Numbers that int32 cannot hold, or may not."""
    if node.op == "Cast" and node.attr["DstT"].type in _WIDE:
        source = DataType(node.attr["SrcT"].type)
        if source not in _INTEGERS | {DataType.BOOL}:
            return f"it casts {source.short_name} to 64 bits"
    if node.op == "Const" and node.attr["dtype"].type in _WIDE:
        value = _value(node)
        if value.size and (int(value.min()) < _INT32[0] or int(value.max()) > _INT32[1]):
            return "it has a constant that needs 64 bits"
    return ""


def _find_gather(node: NodeDef, *, constants: Constants) -> str:
    if node.op in _GATHERS and _source(node, index=1) not in constants:
        return f"its op {node.op} refuses an index out of range"
    return ""


def _find_division(node: NodeDef, *, constants: Constants) -> str:
    if node.op not in _DIVISIONS or node.attr["T"].type not in _INTEGERS:
        return ""
    divisor = constants.get(_source(node, index=1))
    if divisor is None or not _value(divisor).all():
        return f"its op {node.op} refuses to divide by zero"
    return ""


def _source(node: NodeDef, *, index: int) -> str:
    # Within a function an output is `node:argument:0`.
    return str(node.input[index]).partition(":")[0]


def _constants(graph_def: GraphDef) -> Constants:
    """Constant nodes by name; names that mean something else too, in a function, are left out."""
    found: dict[str, Any] = {}
    ambiguous = {
        argument.name
        for function in graph_def.library.function
        for argument in function.signature.input_arg
    }
    for node in all_nodes(graph_def):
        if node.name in found:
            ambiguous.add(node.name)
        found[node.name] = node
    return MappingProxyType(
        {name: node for name, node in found.items() if node.op == "Const" and name not in ambiguous}
    )


def _value(node: NodeDef) -> Any:
    from tensorflow.python.framework.tensor_util import MakeNdarray

    return MakeNdarray(node.attr["value"].tensor)


def _is_writing(node: NodeDef) -> bool:
    definition = _definition(node.op)
    has_reference = definition is not None and any(arg.is_ref for arg in definition.input_arg)
    return has_reference or node.op.startswith(_WRITING_PREFIXES)


def _definition(op: str) -> Any:
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op)
