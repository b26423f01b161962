"""Has OpenVINO compile signatures of SavedModels for the CPU, each in up to three forms.

The general form takes all shapes, with all threads for each run. Where it is known what shapes a
single row has there is one for these, which runs faster. Requests that come beside each other have
one with few threads for each run; `openvino_signature` chooses.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from aspira.contracts.tensors import Tensors
from aspira.runtimes.accelerator import CompileTask
from aspira.runtimes.accelerator_options import AcceleratorOptions
from aspira.runtimes.compile_cache import CompileCache, digest_texts
from aspira.runtimes.graph_review import find_openvino_difference
from aspira.runtimes.openvino_form import Form
from aspira.runtimes.openvino_model import SignatureModel, first_line
from aspira.runtimes.openvino_signature import Forms, OpenvinoSignature, RunCount
from aspira.runtimes.parity import Tolerance
from aspira.runtimes.sample_inputs import has_open_batch
from aspira.runtimes.signature_graph import GraphDef, StaysOnTensorflow

_DEVICE = "CPU"
# Each form holds all weights for itself. Of larger ones there is but the general one.
_MAX_BYTES_FOR_FORMS = 128 << 20
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

_logger = logging.getLogger(__name__)


class FormSpec(NamedTuple):
    """What to compile: for which shapes, and for runs that are alone or beside each other."""

    is_one_row: bool = False
    is_beside_others: bool = False


class OpenvinoAccelerator:
    """Compiles the signatures of one version; `cache` keeps what was compiled."""

    name = "openvino"

    def __init__(self, options: AcceleratorOptions, *, cache: CompileCache) -> None:
        import openvino

        self._core: Core = openvino.Core()
        self._version = openvino.get_version()
        self._capabilities = tuple(self._core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES"))
        self._options = options
        self._cache = cache
        self._runs = RunCount()

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

    def compile(self, task: CompileTask) -> OpenvinoSignature:
        """See `Accelerator.compile`; takes from the cache what is there."""
        model = SignatureModel(task, core=self._core, is_int8=self.precision == "int8")
        general, num_bytes = self._make_form(model, spec=FormSpec())
        if num_bytes > _MAX_BYTES_FOR_FORMS:
            return OpenvinoSignature(Forms(general), runs=self._runs)
        one_row = None
        if has_open_batch(task.signature):
            one_row = self._try_form(model, spec=FormSpec(is_one_row=True))
        beside = self._try_form_beside(model, is_one_row=one_row is not None)
        if one_row is None:
            return OpenvinoSignature(Forms(general, beside), runs=self._runs)
        return OpenvinoSignature(Forms(general), one_row=Forms(one_row, beside), runs=self._runs)

    def _try_form_beside(self, model: SignatureModel, *, is_one_row: bool) -> Form | None:
        if self._options.num_streams:
            # How many there are is the user's to say, for all runs alike.
            return None
        form = self._try_form(model, spec=FormSpec(is_one_row, is_beside_others=True))
        return form if form is not None and form.num_streams > 1 else None

    def _try_form(self, model: SignatureModel, *, spec: FormSpec) -> Form | None:
        """None where the general form has to do."""
        try:
            return self._make_form(model, spec=spec)[0]
        except StaysOnTensorflow as reason:
            what = "runs beside others" if spec.is_beside_others else "single rows"
            _logger.info("Signature %s has no form for %s: %s", model.task.name, what, reason)
            return None

    def _make_form(self, model: SignatureModel, *, spec: FormSpec) -> tuple[Form, int]:
        """It, and the bytes it has on disk, which are mostly weights."""
        key, properties = self._cache_key(model.task, spec=spec), self._properties(spec)
        blob = self._cache.try_read(key)
        if blob is not None:
            try:
                compiled = self._core.import_model(blob, _DEVICE, properties)
                return Form(compiled, task=model.task), len(blob)
            except RuntimeError as error:
                self._cache.drop(key, reason=first_line(error))
        source = model.one_row if spec.is_one_row else model.general
        try:
            compiled = self._core.compile_model(source, _DEVICE, properties)
            blob = compiled.export_model().getvalue()
        except RuntimeError as error:
            raise StaysOnTensorflow(f"OpenVINO cannot compile it: {first_line(error)}") from error
        self._cache.write(key, blob=blob)
        return Form(compiled, task=model.task), len(blob)

    def _properties(self, spec: FormSpec) -> dict[str, Any]:
        properties: dict[str, Any] = {
            # With THROUGHPUT OpenVINO decides how many runs share the threads.
            "PERFORMANCE_HINT": "THROUGHPUT" if spec.is_beside_others else "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if self.precision == "bf16" else "f32",
            # Threads tied to CPUs would all be tied to the same ones, model by model.
            "ENABLE_CPU_PINNING": False,
        }
        if self._options.num_streams:
            properties["NUM_STREAMS"] = self._options.num_streams
        return properties

    def _cache_key(self, task: CompileTask, *, spec: FormSpec) -> str:
        calibration = self._options.calibration_file if self.precision == "int8" else ""
        return digest_texts(
            self._version,
            self._core.get_property(_DEVICE, "FULL_DEVICE_NAME"),
            *self._capabilities,
            task.digest,
            str(spec),
            str(sorted(self._properties(spec).items())),
            self.precision,
            digest_samples(task.recorded) if self.precision == "int8" else calibration,
        )


def digest_samples(samples: tuple[Tensors, ...]) -> str:
    """One digest of recorded inputs, for they decide what int8 makes of a model."""
    texts = [
        f"{alias} {tensor.dtype} {tensor.shape} {tensor.tobytes().hex()}"
        for inputs in samples
        for alias, tensor in inputs.items()
    ]
    return digest_texts(*texts)
