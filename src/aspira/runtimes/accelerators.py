"""Which accelerator the flags ask for, made ready; or why there is none."""

from dataclasses import dataclass
from pathlib import Path

from aspira.contracts.events import AcceleratorProblem, CompiledAfterReady, EventBus
from aspira.runtimes.accelerator import Accelerator
from aspira.runtimes.accelerator_choice import AcceleratorChoice
from aspira.runtimes.accelerator_options import (
    AUTO,
    INSTALL_OPENVINO,
    TENSORFLOW,
    XLA,
    AcceleratorOptions,
    has_openvino,
)
from aspira.runtimes.compile_cache import CompileCache, default_cache_dir
from aspira.runtimes.signature_graph import StaysOnTensorflow


@dataclass(frozen=True, slots=True)
class AcceleratorFactory:
    """Makes the accelerator of one version directory. Events name it by `path`."""

    options: AcceleratorOptions
    path: Path
    events: EventBus

    def make_choice(self) -> AcceleratorChoice:
        """How the version's signatures are decided on.

        Raises:
            StaysOnTensorflow: none of them is to be compiled; the text is the reason.
        """
        return AcceleratorChoice(
            self._make(),
            batch_sizes=self.options.batch_sizes,
            is_speed_decisive=self.options.kind == AUTO,
        )

    def _make(self) -> Accelerator:
        if self.options.kind == TENSORFLOW:
            raise StaysOnTensorflow("--accelerator=tensorflow")
        if self.options.kind == XLA:
            from aspira.runtimes.xla import XlaAccelerator

            return XlaAccelerator(self._tell_late_compile)
        if not has_openvino():
            raise StaysOnTensorflow(INSTALL_OPENVINO)
        if self.options.kind == AUTO and _has_gpu():
            raise StaysOnTensorflow("TensorFlow uses the GPU, OpenVINO would use the CPU")
        from aspira.runtimes.openvino import OpenvinoAccelerator

        return OpenvinoAccelerator(self.options, cache=self._make_cache())

    def _make_cache(self) -> CompileCache:
        max_bytes = self.options.cache_max_bytes
        try:
            directory = Path(self.options.cache_dir or default_cache_dir())
        except RuntimeError:
            self._report("This user has no home directory: set --compile_cache_dir to keep models")
            directory, max_bytes = Path(), 0
        return CompileCache(directory, max_bytes=max_bytes, report=self._report)

    def _report(self, message: str) -> None:
        self.events.publish(AcceleratorProblem(str(self.path), message))

    def _tell_late_compile(self, signature_name: str) -> None:
        self.events.publish(CompiledAfterReady(str(self.path), signature_name))


def _has_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
