"""Serves signatures of SavedModels with OpenVINO on the CPU.

A run happens on the calling thread, with a request object borrowed from a pool. Inputs are read
where they are. Outputs are in memory that the next run of the request object overwrites, so they
are copied before it goes back.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import numpy as np

from aspira.contracts.tensors import Tensor, Tensors
from aspira.runtimes.accelerator import CompileTask, is_finite
from aspira.runtimes.accelerator_options import AcceleratorOptions
from aspira.runtimes.compile_cache import CompileCache, digest_texts
from aspira.runtimes.gather_guard import IN_RANGE, guard_gathers
from aspira.runtimes.graph_review import find_openvino_difference
from aspira.runtimes.parity import Tolerance
from aspira.runtimes.quantization import quantize
from aspira.runtimes.signature_graph import (
    OUTPUT_PREFIX,
    GraphDef,
    StaysOnTensorflow,
    freeze_variables,
)

_DEVICE = "CPU"
_INT32 = (-(2**31), 2**31 - 1)
_MAX_REASON_LENGTH = 300
_MAX_PREPARE_S = 1.0
# f32: what reordered sums differ by, with room. The others are asked for by name, and what they
# cost is told; their bounds only catch what is broken.
_TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        "f32": Tolerance(1e-4),
        "bf16": Tolerance(0.1, mismatch=0.1),
        "int8": Tolerance(0.25, mismatch=0.25),
    }
)

# OpenVINO's bindings have no usable types.
Core = Any
Model = Any
CompiledModel = Any
InferRequest = Any


class OpenvinoAccelerator:
    """Compiles signatures; `cache` keeps what was compiled."""

    name = "openvino"

    def __init__(self, options: AcceleratorOptions, *, cache: CompileCache) -> None:
        import openvino

        self._core: Core = openvino.Core()
        self._version = openvino.get_version()
        self._capabilities = tuple(self._core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES"))
        self._options = options
        self._cache = cache

    @property
    def precision(self) -> str:
        """The one asked for, or f32 where the CPU has no bfloat16."""
        is_missing = self._options.precision == "bf16" and "BF16" not in self._capabilities
        return "f32" if is_missing else self._options.precision

    @property
    def tolerance(self) -> Tolerance:
        return _TOLERANCES[self.precision]

    def find_difference(self, graph_def: GraphDef) -> str:
        return find_openvino_difference(graph_def)

    def compile(self, task: CompileTask) -> "OpenvinoSignature":
        """See `Accelerator.compile`; takes it from the cache if it is there."""
        key = self._cache_key(task)
        blob = self._cache.try_read(key)
        if blob is not None:
            try:
                return OpenvinoSignature(
                    self._core.import_model(blob, _DEVICE, self._properties()), task=task
                )
            except RuntimeError as error:
                self._cache.drop(key, reason=_first_line(error))
        model = self._convert(task)
        if self.precision == "int8":
            model = quantize(model, samples=_positional(model, task=task))
        try:
            compiled = self._core.compile_model(model, _DEVICE, self._properties())
            self._cache.write(key, blob=compiled.export_model().getvalue())
        except RuntimeError as error:
            raise StaysOnTensorflow(f"OpenVINO cannot compile it: {_first_line(error)}") from error
        return OpenvinoSignature(compiled, task=task)

    def _convert(self, task: CompileTask) -> Model:
        frozen = freeze_variables(task.graph, session=task.session)
        # OpenVINO's own converter would do, but reports its use to its makers; this does not.
        with TemporaryDirectory(prefix="aspira-") as directory:
            file = Path(directory) / "model.pb"
            try:
                file.write_bytes(frozen.SerializeToString())
                model = self._core.read_model(file)
            except (RuntimeError, ValueError) as error:
                text = _first_line(error)
                raise StaysOnTensorflow(f"OpenVINO cannot convert it: {text}") from error
        guard_gathers(model)
        return model

    def _properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if self.precision == "bf16" else "f32",
            # Threads tied to CPUs would all be tied to the same ones, model by model.
            "ENABLE_CPU_PINNING": False,
        }
        if self._options.num_streams:
            properties["NUM_STREAMS"] = self._options.num_streams
        return properties

    def _cache_key(self, task: CompileTask) -> str:
        calibration = self._options.calibration_file if self.precision == "int8" else ""
        return digest_texts(
            self._version,
            self._core.get_property(_DEVICE, "FULL_DEVICE_NAME"),
            *self._capabilities,
            task.digest,
            str(sorted(self._properties().items())),
            self.precision,
            digest_samples(task.recorded) if self.precision == "int8" else calibration,
        )


@dataclass(frozen=True, slots=True)
class _Feed:
    """An input of the compiled model: which alias feeds it, and what fits."""

    alias: str
    dtype: np.dtype[np.generic]


class OpenvinoSignature:
    """A compiled signature and the request objects that run it."""

    def __init__(self, compiled: CompiledModel, *, task: CompileTask) -> None:
        self._compiled = compiled
        self._feeds = _read_feeds(compiled, task=task)
        self._outputs, self._in_range = _read_outputs(compiled, task=task)
        self._free: deque[InferRequest] = deque()

    def prepare(self, samples: Sequence[Tensors]) -> None:
        """The first run of a shape takes several times as long as the next: have them now."""
        outputs = tuple(self._outputs)
        for inputs in samples:
            started_s = time.monotonic()
            self.try_run(inputs, outputs=outputs)
            if time.monotonic() - started_s > _MAX_PREPARE_S:
                # Larger ones would take longer still, and gain little in proportion.
                return

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        fed = _try_feed_all(inputs, feeds=self._feeds)
        if fed is None:
            return None
        # A request that fails is not put back: whatever state it is in, nobody meets it again.
        with suppress(RuntimeError, ValueError, TypeError):
            request = self._borrow()
            results = _infer(request, inputs=fed)
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

    def _collect(self, results: list[Tensor], *, outputs: tuple[str, ...]) -> Tensors | None:
        if self._in_range is not None and not results[self._in_range]:
            return None
        return {alias: np.array(results[self._outputs[alias]]) for alias in outputs}


def _infer(request: InferRequest, *, inputs: list[Tensor]) -> list[Tensor]:
    """Run it; the results are views of memory that the request object uses again."""
    from openvino import Tensor as SharedTensor

    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, SharedTensor(tensor, shared_memory=True))
    return list(request.infer({}, share_outputs=True).values())


def _try_feed_all(inputs: Tensors, *, feeds: Sequence[_Feed]) -> list[Tensor] | None:
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
    if flags.c_contiguous and flags.writeable and flags.aligned:
        return tensor
    # OpenVINO takes nothing that it could not write to, though it does not.
    return np.array(tensor, order="C")


def _fits_int32(tensor: Tensor) -> bool:
    return _INT32[0] <= int(tensor.min()) and int(tensor.max()) <= _INT32[1]


def _read_feeds(compiled: CompiledModel, *, task: CompileTask) -> tuple[_Feed, ...]:
    """Inputs of the compiled model in its order; what no output depends on is not among them."""
    aliases = {name.partition(":")[0]: alias for name, alias in task.graph.inputs.items()}
    feeds = []
    for port in compiled.inputs:
        alias = _match(port.names, choices=aliases)
        dtype = task.signature.inputs[alias].dtype.numpy_dtype
        if dtype is None or dtype != _numpy_dtype(port):
            raise StaysOnTensorflow(f"OpenVINO feeds {alias} as {port.element_type.type_name}")
        feeds.append(_Feed(alias, dtype))
    return tuple(feeds)


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


def _positional(model: Model, *, task: CompileTask) -> list[list[Tensor]]:
    """The recorded inputs in the order of the model's."""
    feeds = _read_feeds(model, task=task)
    samples = (_try_feed_all(inputs, feeds=feeds) for inputs in task.recorded)
    return [sample for sample in samples if sample is not None]


def digest_samples(samples: tuple[Tensors, ...]) -> str:
    """One digest of recorded inputs, for they decide what int8 makes of a model."""
    texts = [
        f"{alias} {tensor.dtype} {tensor.shape} {tensor.tobytes().hex()}"
        for inputs in samples
        for alias, tensor in inputs.items()
    ]
    return digest_texts(*texts)


def _first_line(error: Exception) -> str:
    """What an exception of OpenVINO says, without the places in its source."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith("Exception from")]
    return " ".join(telling)[:_MAX_REASON_LENGTH] or type(error).__name__
