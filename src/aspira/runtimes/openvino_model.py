"""Makes models for OpenVINO of a signature."""

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aspira.runtimes.accelerator import CompileTask
from aspira.runtimes.gather_guard import guard_gathers
from aspira.runtimes.openvino_form import read_feeds, try_feed_all
from aspira.runtimes.quantization import quantize
from aspira.runtimes.signature_graph import StaysOnTensorflow, freeze_variables

_MAX_REASON_LENGTH = 300

# OpenVINO's bindings have no usable types.
Core = Any
Model = Any


class SignatureModel:
    """A signature as models for OpenVINO. They are made when first asked for, and share weights.

    All properties raise StaysOnTensorflow where it cannot be converted.
    """

    def __init__(self, task: CompileTask, *, core: Core, is_int8: bool) -> None:
        self.task = task
        self._core = core
        self._is_int8 = is_int8

    @cached_property
    def general(self) -> Model:
        """It takes all shapes of the signature."""
        model = _convert(self.task, core=self._core)
        return _quantize(model, task=self.task) if self._is_int8 else model

    @cached_property
    def one_row(self) -> Model:
        """It takes one row of each input.

        Raises:
            StaysOnTensorflow: it takes no single row.
        """
        model = self.general.clone()
        inputs = self.task.signature.inputs
        shapes = {
            port: (1, *(inputs[feed.alias].shape or ())[1:])
            for port, feed in zip(model.inputs, read_feeds(model, task=self.task), strict=True)
        }
        try:
            model.reshape(shapes)
        except RuntimeError as error:
            raise StaysOnTensorflow(f"It takes no single row: {first_line(error)}") from error
        return model


def first_line(error: Exception) -> str:
    """What an exception of OpenVINO says, without the places in its source."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith("Exception from")]
    return " ".join(telling)[:_MAX_REASON_LENGTH] or type(error).__name__


def _convert(task: CompileTask, *, core: Core) -> Model:
    frozen = freeze_variables(task.graph, session=task.session)
    # OpenVINO's own converter would do, but reports its use to its makers; this does not.
    with TemporaryDirectory(prefix="aspira-") as directory:
        file = Path(directory) / "model.pb"
        try:
            file.write_bytes(frozen.SerializeToString())
            model = core.read_model(file)
        except (RuntimeError, ValueError) as error:
            text = first_line(error)
            raise StaysOnTensorflow(f"OpenVINO cannot convert it: {text}") from error
    guard_gathers(model)
    return model


def _quantize(model: Model, *, task: CompileTask) -> Model:
    feeds = read_feeds(model, task=task)
    samples = (try_feed_all(inputs, feeds=feeds) for inputs in task.recorded)
    return quantize(model, samples=[sample for sample in samples if sample is not None])
