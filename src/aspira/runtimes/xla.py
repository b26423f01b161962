"""Serves signatures of SavedModels compiled by XLA, for the batch sizes it was compiled for.

XLA compiles for exact shapes, and takes seconds. So a batch is filled up to the next size that was
compiled before the version was published, and TensorFlow answers what is larger than all.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aspira.contracts.signatures import Shape, Signature, TensorSpec
from aspira.contracts.tensors import Tensor, Tensors
from aspira.runtimes.accelerator import CompileTask, is_finite
from aspira.runtimes.graph_review import find_xla_difference
from aspira.runtimes.parity import Tolerance
from aspira.runtimes.sample_inputs import has_open_batch
from aspira.runtimes.signature_graph import GraphDef, StaysOnTensorflow, freeze_variables

Call = Callable[..., list[Tensor]]


class XlaAccelerator:
    """Compiles signatures. `on_late_compile` gets the name of one that compiled for a request."""

    name = "xla"
    precision = "f32"
    tolerance = Tolerance(1e-4)

    def __init__(self, on_late_compile: Callable[[str], None]) -> None:
        self._on_late_compile = on_late_compile

    def find_difference(self, graph_def: GraphDef) -> str:
        return find_xla_difference(graph_def)

    def compile(self, task: CompileTask) -> "XlaSignature":
        """See `Accelerator.compile`. XLA itself starts with the runs of `prepare`."""
        if not _is_fixed(task.signature) and not has_open_batch(task.signature):
            raise StaysOnTensorflow("XLA needs inputs whose sizes are fixed, but for the first")
        return XlaSignature(
            _make_call(task),
            name=task.name,
            signature=task.signature,
            feeds=tuple(task.graph.inputs.values()),
            on_late_compile=self._on_late_compile,
        )


class XlaSignature:
    """A compiled signature. `call` takes `feeds` in their order and gives all outputs."""

    def __init__(
        self,
        call: Call,
        *,
        name: str,
        signature: Signature,
        feeds: tuple[str, ...],
        on_late_compile: Callable[[str], None],
    ) -> None:
        self._call = call
        self._name = name
        self._signature = signature
        self._feeds = feeds
        self._is_fixed = _is_fixed(signature)
        self._on_late_compile = on_late_compile
        self._compiled: set[tuple[Shape, ...]] = set()
        self._buckets: list[int] = []

    def prepare(self, samples: Sequence[Tensors]) -> None:
        for inputs in samples:
            fed = [inputs[alias] for alias in self._feeds]
            try:
                self._call(*fed)
            except Exception as error:
                # XLA refuses ops with errors of many classes.
                text = str(error).partition("\n")[0]
                raise StaysOnTensorflow(f"XLA cannot compile it: {text}") from error
            self._compiled.add(_shapes(fed))
        if not self._is_fixed:
            self._buckets = sorted({shapes[0][0] or 0 for shapes in self._compiled})

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        specs = self._signature.inputs
        if not all(_fits(inputs[alias], spec=specs[alias]) for alias in self._feeds):
            return None
        if self._is_fixed:
            results = self._run([inputs[alias] for alias in self._feeds])
            return {alias: results[alias] for alias in outputs}
        sizes = {inputs[alias].shape[0] for alias in self._feeds}
        size = sizes.pop()
        index = bisect_left(self._buckets, size)
        if sizes or not size or index == len(self._buckets):
            return None
        bucket = self._buckets[index]
        results = self._run([_fill_up(inputs[alias], size=bucket) for alias in self._feeds])
        return {alias: self._cut(results[alias], alias=alias, size=size) for alias in outputs}

    def try_all(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> list[Tensors | None]:
        return [self.try_run(inputs, outputs=outputs)]

    def _run(self, fed: list[Tensor]) -> dict[str, Tensor]:
        shapes = _shapes(fed)
        if shapes not in self._compiled:
            self._compiled.add(shapes)
            self._on_late_compile(self._name)
        return dict(zip(self._signature.outputs, self._call(*fed), strict=True))

    def _cut(self, result: Tensor, *, alias: str, size: int) -> Tensor:
        """Without the rows of filling. An output of a fixed size has none."""
        shape = self._signature.outputs[alias].shape
        has_rows = result.ndim > 0 and (shape is None or (shape and shape[0] is None))
        return result[:size] if has_rows else np.asarray(result)


def _make_call(task: CompileTask) -> Call:
    """A session callable, since it costs a fraction of calling a function eagerly."""
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.framework.convert_to_constants import disable_lower_using_switch_merge

    # Loops and branches as XLA knows them.
    frozen = disable_lower_using_switch_merge(freeze_variables(task.graph, session=task.session))
    names = list(task.graph.inputs)
    specs = [_tensor_spec(task.signature.inputs[alias]) for alias in task.graph.inputs.values()]
    fetches = [f"{node}:0" for node in task.graph.output_nodes]

    def compute(*tensors: Any) -> Any:
        # Inputs that no output depends on are not in the frozen graph.
        known = {node.name for node in frozen.node}
        fed = {
            name: tensor
            for name, tensor in zip(names, tensors, strict=True)
            if name.partition(":")[0] in known
        }
        return tf.graph_util.import_graph_def(
            frozen, input_map=fed, return_elements=fetches, name=""
        )

    graph = tf.Graph()
    try:
        with graph.as_default():
            placeholders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            results = tf.function(compute, jit_compile=True, input_signature=specs)(*placeholders)
            options = config_pb2.CallableOptions(
                feed=[placeholder.name for placeholder in placeholders],
                fetch=[tf.identity(result).name for result in results],
            )
        options.run_options.inter_op_thread_pool = -1
        session = tf.compat.v1.Session(graph=graph)
        # As in aspira.runtimes.tensorflow.
        call: Call = session._make_callable_from_options(options)  # noqa: SLF001
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise StaysOnTensorflow(f"XLA cannot be given it: {error}") from error
    return call


def _tensor_spec(spec: TensorSpec) -> Any:
    import tensorflow as tf

    return tf.TensorSpec(spec.shape, tf.dtypes.DType(spec.dtype.value))


def _is_fixed(signature: Signature) -> bool:
    return all(
        spec.shape is not None and None not in spec.shape for spec in signature.inputs.values()
    )


def _fits(tensor: Tensor, *, spec: TensorSpec) -> bool:
    """Whether the signature says that such a tensor may come, so that XLA has seen its like."""
    assert spec.shape is not None
    return (
        tensor.dtype == spec.dtype.numpy_dtype
        and tensor.ndim == len(spec.shape)
        and all(want in {None, size} for want, size in zip(spec.shape, tensor.shape, strict=True))
        and (tensor.dtype.kind != "f" or is_finite(tensor))
    )


def _shapes(tensors: Sequence[Tensor]) -> tuple[Shape, ...]:
    return tuple(tensor.shape for tensor in tensors)


def _fill_up(tensor: Tensor, *, size: int) -> Tensor:
    """With rows of zeros up to `size`; their results are cut off again."""
    if tensor.shape[0] == size:
        return tensor
    filled = np.zeros((size, *tensor.shape[1:]), tensor.dtype)
    filled[: tensor.shape[0]] = tensor
    return filled
