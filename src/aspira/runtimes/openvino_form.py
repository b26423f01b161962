"""One form in which OpenVINO holds a signature, and the request objects that run it.

A run happens on the calling thread, with a request object borrowed from a pool. Inputs are read
where they are. Outputs are in memory that the next run of the request object overwrites, so they
are copied before it goes back.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from aspira.contracts.tensors import Tensor, Tensors
from aspira.runtimes.accelerator import CompileTask, is_finite
from aspira.runtimes.gather_guard import IN_RANGE
from aspira.runtimes.signature_graph import OUTPUT_PREFIX, StaysOnTensorflow

_INT32 = (-(2**31), 2**31 - 1)

# OpenVINO's bindings have no usable types.
Model = Any
CompiledModel = Any
InferRequest = Any
SharedTensor = Any


@dataclass(frozen=True, slots=True)
class Feed:
    """An input of the compiled model: which alias feeds it, and what fits.

    `shape` is None where a size of it is open; `element_type` is OpenVINO's word for the dtype.
    """

    alias: str
    dtype: np.dtype[np.generic]
    element_type: Any
    shape: tuple[int, ...] | None


class Form:
    """A compiled model; all methods may be called from several threads at once."""

    def __init__(self, compiled: CompiledModel, *, task: CompileTask) -> None:
        self._compiled = compiled
        self._feeds = read_feeds(compiled, task=task)
        self._outputs, self._in_range = _read_outputs(compiled, task=task)
        self._free: deque[InferRequest] = deque()

    @property
    def num_streams(self) -> int:
        """Runs that do not wait for each other's threads."""
        return int(self._compiled.get_property("NUM_STREAMS"))

    def has_shapes_of(self, inputs: Tensors) -> bool:
        """Whether it was compiled for these shapes, as far as it was compiled for any."""
        return all(
            feed.shape is None or feed.shape == inputs[feed.alias].shape for feed in self._feeds
        )

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        """See `CompiledSignature.try_run`."""
        fed = try_feed_all(inputs, feeds=self._feeds)
        if fed is None:
            return None
        # A request that fails is not put back: whatever state it is in, nobody meets it again.
        with suppress(RuntimeError, ValueError, TypeError):
            request = self._borrow()
            results = self._infer(request, inputs=fed)
            answer = self._collect(results, outputs=outputs)
            del results
            self._free.append(request)
            return answer
        return None

    def _borrow(self) -> InferRequest:
        try:
            return self._free.pop()
        except IndexError:
            return self._compiled.create_infer_request()

    def _infer(self, request: InferRequest, *, inputs: list[Tensor]) -> list[Tensor]:
        """Run it; the results are views of memory that the request object uses again."""
        for index, (tensor, feed) in enumerate(zip(inputs, self._feeds, strict=True)):
            request.set_input_tensor(index, _share(tensor, element_type=feed.element_type))
        return list(request.infer({}, share_outputs=True).values())

    def _collect(self, results: list[Tensor], *, outputs: tuple[str, ...]) -> Tensors | None:
        if self._in_range is not None and not results[self._in_range]:
            return None
        return {alias: np.array(results[self._outputs[alias]]) for alias in outputs}


def read_feeds(model: Model | CompiledModel, *, task: CompileTask) -> tuple[Feed, ...]:
    """The inputs of a model in its order; what no output depends on is not among them.

    Raises:
        StaysOnTensorflow: OpenVINO made something else of them.
    """
    aliases = {name.partition(":")[0]: alias for name, alias in task.graph.inputs.items()}
    feeds = []
    for port in model.inputs:
        alias = _match(port.names, choices=aliases)
        dtype = task.signature.inputs[alias].dtype.numpy_dtype
        if dtype is None or dtype != _numpy_dtype(port):
            raise StaysOnTensorflow(f"OpenVINO feeds {alias} as {port.element_type.type_name}")
        shape = tuple(port.shape) if port.partial_shape.is_static else None
        feeds.append(Feed(alias, dtype, port.element_type, shape))
    return tuple(feeds)


def try_feed_all(inputs: Tensors, *, feeds: Sequence[Feed]) -> list[Tensor] | None:
    """The inputs in the model's order; None if it would make something else of one."""
    fed = []
    for feed in feeds:
        tensor = _try_feed(inputs[feed.alias], dtype=feed.dtype)
        if tensor is None:
            return None
        fed.append(tensor)
    return fed


def _try_feed(tensor: Tensor, *, dtype: np.dtype[np.generic]) -> Tensor | None:
    """The tensor as OpenVINO can read it; None if it would read something else out of it."""
    if tensor.dtype != dtype:
        return None
    if dtype.kind == "f" and not is_finite(tensor):
        return None
    if dtype == np.int64 and tensor.size and not _fits_int32(tensor):
        return None
    flags = tensor.flags
    return tensor if flags.c_contiguous and flags.aligned else np.array(tensor, order="C")


def _share(tensor: Tensor, *, element_type: Any) -> SharedTensor:
    """OpenVINO's view of the tensor's memory, which it reads and never writes.

    With shape and type it takes read-only memory too, which requests of clients mostly are.
    """
    from openvino import Tensor as OpenvinoTensor

    return OpenvinoTensor(tensor, tensor.shape, element_type)


def _fits_int32(tensor: Tensor) -> bool:
    return _INT32[0] <= int(tensor.min()) and int(tensor.max()) <= _INT32[1]


def _read_outputs(
    compiled: CompiledModel, *, task: CompileTask
) -> tuple[dict[str, int], int | None]:
    """Where each output is, by alias, and where the check of indices is, if there is one."""
    # Outputs that are the same tensor share a port, which has the names of all.
    ports = {
        name.partition(":")[0] if name.startswith(OUTPUT_PREFIX) else name: index
        for index, port in enumerate(compiled.outputs)
        for name in port.names
    }
    found = {}
    for alias, node in zip(task.graph.outputs, task.graph.output_nodes, strict=True):
        # An output that is an input goes by that one's names.
        index = ports.get(node, ports.get(task.signature.outputs[alias].runtime_name))
        if index is None:
            raise StaysOnTensorflow(f"OpenVINO lost the name of output {alias}")
        found[alias] = index
    return found, ports.get(IN_RANGE)


def _match(names: set[str], *, choices: Mapping[str, str]) -> str:
    for name in names:
        if (alias := choices.get(name.partition(":")[0])) is not None:
            return alias
    raise StaysOnTensorflow(f"OpenVINO lost the name of an input, {sorted(names)}")


def _numpy_dtype(port: Any) -> np.dtype[np.generic] | None:
    # There are element types without a numpy dtype.
    with suppress(RuntimeError, TypeError):
        dtype: np.dtype[np.generic] = np.dtype(port.element_type.to_dtype())
        return dtype
    return None
