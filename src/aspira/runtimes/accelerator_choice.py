"""Decides whether an accelerator serves a signature: by what it computes, then by trying both.

A graph that may answer otherwise for some request is not compiled at all. What is compiled must
agree with TensorFlow on samples, and unless it was asked for by name be faster on them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from aspira.contracts.errors import ServingError
from aspira.contracts.servable import Servable, SignatureRuntime
from aspira.contracts.tensors import Tensors
from aspira.runtimes.accelerator import Accelerator, CompiledSignature, CompileTask
from aspira.runtimes.accelerator_options import TENSORFLOW
from aspira.runtimes.parity import Distance, farthest, measure_distance, measure_speed
from aspira.runtimes.sample_inputs import generate_inputs, has_open_batch, open_sizes
from aspira.runtimes.signature_graph import StaysOnTensorflow

_MAX_RECORDED = 8
# One, and one that is filled up where there are buckets.
_SAMPLE_BATCH_SIZES = (1, 3)

# Said where a lower precision was asked for and answers too differently.
_PRECISION_ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "bf16": "; use --precision=f32",
        "int8": "; calibrate with more requests like those of your clients (--calibration_file),"
        " or use --precision=bf16 or f32",
    }
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What was decided; `compiled` is None where TensorFlow serves."""

    choice: SignatureRuntime
    compiled: CompiledSignature | None = None


@dataclass(frozen=True, slots=True)
class AcceleratorChoice:
    """How to decide: with which accelerator, for which batch sizes, and whether speed counts."""

    accelerator: Accelerator
    batch_sizes: tuple[int, ...]
    is_speed_decisive: bool

    def decide(self, task: CompileTask, *, tensorflow: Servable) -> Candidate:
        """Compile and try a signature. Never raises for what it finds."""
        try:
            return self._try(task, tensorflow=tensorflow)
        except StaysOnTensorflow as reason:
            return Candidate(SignatureRuntime(TENSORFLOW, str(reason)))
        except Exception as error:  # a compiler that stumbles over a model must not cost the model
            _logger.exception("%s failed on signature %s", self.accelerator.name, task.name)
            return Candidate(SignatureRuntime(TENSORFLOW, f"{type(error).__name__}: {error}"))

    def _try(self, task: CompileTask, *, tensorflow: Servable) -> Candidate:
        accelerator = self.accelerator
        if difference := accelerator.find_difference(task.graph.graph_def):
            raise StaysOnTensorflow(difference)
        outputs = tuple(task.signature.outputs)

        def run_tensorflow(inputs: Tensors) -> Tensors:
            return tensorflow.run(task.name, inputs=inputs, outputs=outputs)

        samples = find_samples(task, run=run_tensorflow)
        compiled = accelerator.compile(task)
        compiled.prepare(self._sizes_to_prepare(task, samples=samples))

        distance = _compare(
            samples, expect=run_tensorflow, run=partial(compiled.try_all, outputs=outputs)
        )
        if not distance.is_within(accelerator.tolerance):
            raise StaysOnTensorflow(_describe_disagreement(distance, accelerator=accelerator))
        # The first, and the one with several rows: a change of size costs time, and so counts.
        timed = (samples[0], samples[-1])
        run_compiled = partial(compiled.try_run, outputs=outputs)
        times_s = measure_speed(
            [[partial(run, inputs) for inputs in timed] for run in (run_tensorflow, run_compiled)]
        )
        return self._decide_by_speed(compiled, distance=distance, times_s=times_s)

    def _decide_by_speed(
        self, compiled: CompiledSignature, *, distance: Distance, times_s: Sequence[float]
    ) -> Candidate:
        tensorflow_s, accelerated_s = times_s
        is_faster = accelerated_s < tensorflow_s
        is_chosen = is_faster or not self.is_speed_decisive
        name = self.accelerator.name
        reason = f"{name if is_faster else TENSORFLOW} is faster"
        choice = SignatureRuntime(
            name if is_chosen else TENSORFLOW,
            reason if is_faster or not is_chosen else f"it was asked for, though {reason}",
            precision=self.accelerator.precision if is_chosen else "f32",
            difference=str(distance),
            tensorflow_s=tensorflow_s,
            accelerated_s=accelerated_s,
        )
        return Candidate(choice, compiled if is_chosen else None)

    def _sizes_to_prepare(self, task: CompileTask, *, samples: list[Tensors]) -> list[Tensors]:
        if not has_open_batch(task.signature):
            return samples
        return [resize_batch(samples[0], size=size) for size in sorted(self.batch_sizes)]


def _describe_disagreement(distance: Distance, *, accelerator: Accelerator) -> str:
    """What was measured, what would have done, and what a user of a lower precision can try."""
    allowed = accelerator.tolerance.difference
    bound = "" if distance.problem else f"; up to {allowed:.1e} counts as the same"
    advice = _PRECISION_ADVICE.get(accelerator.precision, "")
    return f"{accelerator.name} answers otherwise: {distance}{bound}{advice}"


def find_samples(task: CompileTask, *, run: Callable[[Tensors], object]) -> list[Tensors]:
    """A few inputs that TensorFlow runs: recorded ones, else generated ones.

    Raises:
        StaysOnTensorflow: there are none to compare with.
    """
    if task.recorded:
        samples = list(task.recorded[:_MAX_RECORDED])
        if has_open_batch(task.signature):
            samples += [resize_batch(samples[0], size=size) for size in _SAMPLE_BATCH_SIZES]
        if found := _runnable(samples, run=run):
            return found
    for open_size in open_sizes(task.signature):
        generated = (
            generate_inputs(task.signature, batch_size=size, open_size=open_size)
            for size in _SAMPLE_BATCH_SIZES
        )
        if found := _runnable([inputs for inputs in generated if inputs is not None], run=run):
            return found
    raise StaysOnTensorflow("no inputs to compare with are recorded, and it takes none generated")


def resize_batch(inputs: Tensors, *, size: int) -> Tensors:
    """The inputs with their rows repeated, or left out, so that there are `size`."""
    return {alias: np.resize(tensor, (size, *tensor.shape[1:])) for alias, tensor in inputs.items()}


def _runnable(samples: Sequence[Tensors], *, run: Callable[[Tensors], object]) -> list[Tensors]:
    found = []
    for inputs in samples:
        with suppress(ServingError):
            run(inputs)
            found.append(inputs)
    return found


def _compare(
    samples: Sequence[Tensors],
    *,
    expect: Callable[[Tensors], Tensors],
    run: Callable[[Tensors], Sequence[Tensors | None]],
) -> Distance:
    distances: list[Distance] = []
    for inputs in samples:
        expected = expect(inputs)
        distances += [
            Distance(problem="it declines what TensorFlow takes")
            if found is None
            else measure_distance(expected, found=found)
            for found in run(inputs)
        ]
    return farthest(distances)
