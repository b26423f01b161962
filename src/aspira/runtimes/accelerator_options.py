"""What may serve SavedModels besides TensorFlow, and what has to be installed for it."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from aspira.contracts.errors import FailedPrecondition, InvalidArgument

AUTO, TENSORFLOW, OPENVINO, XLA = "auto", "tensorflow", "openvino", "xla"
ACCELERATORS = (AUTO, TENSORFLOW, OPENVINO, XLA)
PRECISIONS = ("f32", "bf16", "int8")
INSTALL_OPENVINO = "OpenVINO is not installed; install it with: pip install 'aspira[openvino]'"


@dataclass(frozen=True, slots=True)
class AcceleratorOptions:
    """What serves the signatures of a SavedModel besides TensorFlow; one field, one flag."""

    kind: str = "tensorflow"
    """auto: OpenVINO where it is faster. openvino, xla: wherever they can. tensorflow: neither."""

    precision: str = "f32"
    """Of OpenVINO: f32, bf16 or int8."""

    calibration_file: str = ""
    """Recorded requests to find the ranges of int8 with; empty: the version's warm-up file."""

    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    """What is compiled for before a version is published. XLA runs no others."""

    num_streams: int = 0
    """Runs that OpenVINO does at once, the CPUs shared among them; 0 fits it to the requests."""

    cache_dir: str = ""
    """Where compiled models are kept; empty: the user's cache directory."""

    cache_max_bytes: int = 4 << 30
    """Size of all that is kept there; 0 keeps nothing."""


def check_accelerator(options: AcceleratorOptions) -> None:
    """Refuse flags that contradict each other, or that need what is not installed.

    Raises:
        InvalidArgument: a precision that the accelerator does not have.
        FailedPrecondition: a package is missing.
    """
    if options.precision != "f32" and options.kind not in {AUTO, OPENVINO}:
        raise InvalidArgument(
            f"--precision={options.precision} is computed by OpenVINO: set --accelerator=auto or "
            "--accelerator=openvino"
        )
    if options.kind == OPENVINO and not has_openvino():
        raise FailedPrecondition(f"--accelerator=openvino: {INSTALL_OPENVINO}")
    if options.precision == "int8" and find_spec("nncf") is None:
        raise FailedPrecondition(
            "--precision=int8 needs NNCF; install it with: pip install 'aspira[int8]'"
        )
    if options.calibration_file and not Path(options.calibration_file).is_file():
        raise InvalidArgument(f"--calibration_file={options.calibration_file} is no file")


def has_openvino() -> bool:
    """Whether OpenVINO is installed; it is not imported."""
    return find_spec("openvino") is not None
