from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from aspira.contracts.servable import SignatureRuntime
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors
from aspira.runtimes import accelerator_choice
from aspira.runtimes.accelerator import CompileTask
from aspira.runtimes.accelerator_choice import AcceleratorChoice, Candidate
from aspira.runtimes.parity import Tolerance
from aspira.runtimes.signature_graph import SignatureGraph, StaysOnTensorflow
from aspira.testing.toy_servable import ToyServable


@dataclass
class Compiled:
    """Answers `x * factor + 2`, or declines."""

    factor: float = 0.5
    is_declining: bool = False
    prepared: tuple[int, ...] = ()

    def prepare(self, samples: Sequence[Tensors]) -> None:
        self.prepared = tuple(len(sample["x"]) for sample in samples)

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        if self.is_declining:
            return None
        return {"y": np.asarray(inputs["x"] * np.float32(self.factor) + np.float32(2))}

    def try_all(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> list[Tensors | None]:
        return [self.try_run(inputs, outputs=outputs)]


class OftenRight(Compiled):
    """In one of its ways it answers otherwise."""

    def try_all(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> list[Tensors | None]:
        wrong = Compiled(factor=0.51)
        return [each.try_run(inputs, outputs=outputs) for each in (Compiled(), wrong, Compiled())]


@dataclass
class Toy:
    """An accelerator that makes what it was given."""

    compiled: Compiled
    error: Exception | None = None
    known_difference: str = ""
    name: str = "toy"
    precision: str = "f32"

    @property
    def tolerance(self) -> Tolerance:
        return Tolerance(1e-4)

    def find_difference(self, graph_def: object) -> str:
        return self.known_difference

    def compile(self, task: CompileTask) -> Compiled:
        if self.error is not None:
            raise self.error
        return self.compiled


def make_task(*, recorded: tuple[Tensors, ...] = ()) -> CompileTask:
    signature = Signature(
        {"x": TensorSpec(DataType.FLOAT, (None,), "x:0")},
        {"y": TensorSpec(DataType.FLOAT, (None,), "y:0")},
    )
    graph = SignatureGraph(None, {"x:0": "x"}, ("y",))
    return CompileTask("serving_default", signature, graph, None, "", recorded)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What TensorFlow and the accelerator are found to take."""
    times = [2.0, 1.0]
    monkeypatch.setattr(accelerator_choice, "measure_speed", lambda runs: times)
    return times


def decide(
    accelerator: Toy, *, is_speed_decisive: bool = True, task: CompileTask | None = None
) -> Candidate:
    choice = AcceleratorChoice(accelerator, (4, 1), is_speed_decisive)
    return choice.decide(task or make_task(), tensorflow=ToyServable())


def test_the_faster_one_serves_if_it_agrees(seconds: list[float]) -> None:
    compiled = Compiled()
    candidate = decide(Toy(compiled))
    assert candidate.compiled is compiled
    assert candidate.choice == SignatureRuntime(
        "toy",
        "toy is faster",
        difference="0.0e+00 of the largest value",
        tensorflow_s=2.0,
        accelerated_s=1.0,
    )
    assert compiled.prepared == (1, 4)


@pytest.mark.parametrize(("is_speed_decisive", "runtime"), [(True, "tensorflow"), (False, "toy")])
def test_the_slower_one_serves_only_if_it_is_asked_for(
    seconds: list[float], is_speed_decisive: bool, runtime: str
) -> None:
    seconds.reverse()
    candidate = decide(Toy(Compiled()), is_speed_decisive=is_speed_decisive)
    assert candidate.choice.runtime == runtime
    assert candidate.choice.reason.endswith("tensorflow is faster")
    assert (candidate.compiled is None) == (runtime == "tensorflow")


@pytest.mark.parametrize("is_speed_decisive", [True, False])
@pytest.mark.parametrize(
    ("accelerator", "reason"),
    [
        (Toy(Compiled(factor=0.51)), "toy answers otherwise: "),
        (Toy(OftenRight()), "toy answers otherwise: "),
        (Toy(Compiled(is_declining=True)), "it declines what TensorFlow takes"),
        (Toy(Compiled(), error=StaysOnTensorflow("no such op")), "no such op"),
        (Toy(Compiled(), error=MemoryError("too large")), "MemoryError: too large"),
        (Toy(Compiled(), known_difference="it rounds"), "it rounds"),
    ],
)
def test_what_does_not_agree_never_serves(
    accelerator: Toy, reason: str, is_speed_decisive: bool
) -> None:
    candidate = decide(accelerator, is_speed_decisive=is_speed_decisive)
    assert candidate.compiled is None
    assert candidate.choice.runtime == "tensorflow"
    assert reason in candidate.choice.reason


@pytest.mark.usefixtures("seconds")
def test_recorded_requests_decide_before_generated_ones() -> None:
    # Apart only far from the generated values, which are in [-1, 1).
    class Clipped(Compiled):
        def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
            clipped: Tensor = np.minimum(inputs["x"], np.float32(100))
            return super().try_run({"x": clipped}, outputs=outputs)

    assert decide(Toy(Clipped())).choice.runtime == "toy"
    task = make_task(recorded=({"x": np.float32([1000])},))
    assert "answers otherwise" in decide(Toy(Clipped()), task=task).choice.reason


@pytest.mark.usefixtures("seconds")
def test_one_row_is_compared_whatever_was_recorded() -> None:
    class WrongForOne(Compiled):
        def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
            answer = Compiled(factor=0.51 if len(inputs["x"]) == 1 else 0.5)
            return answer.try_run(inputs, outputs=outputs)

    task = make_task(recorded=({"x": np.float32([1, 2])},))
    assert "answers otherwise" in decide(Toy(WrongForOne()), task=task).choice.reason


@pytest.mark.parametrize(
    ("precision", "advice"),
    [("f32", "counts as the same"), ("bf16", "--precision=f32"), ("int8", "--calibration_file")],
)
def test_a_disagreement_says_what_to_do(precision: str, advice: str) -> None:
    found = decide(Toy(Compiled(factor=0.51), precision=precision), task=make_task())

    assert found.choice.reason.startswith("toy answers otherwise: ")
    assert advice in found.choice.reason
