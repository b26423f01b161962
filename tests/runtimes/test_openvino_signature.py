"""Which form of a signature a request is run in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from aspira.contracts.tensors import Tensors
from aspira.runtimes.openvino_signature import Forms, OpenvinoSignature, RunCount

ONE, THREE = {"x": np.zeros((1, 4))}, {"x": np.zeros((3, 4))}


@dataclass
class ToyForm:
    """Notes its runs in `ran`, and calls `meanwhile` in the midst of each."""

    name: str
    ran: list[str]
    num_rows: int | None = None
    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    def has_shapes_of(self, inputs: Tensors) -> bool:
        return self.num_rows in {None, len(inputs["x"])}

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        self.ran.append(self.name)
        if self.meanwhile:
            self.meanwhile.pop()()
        return {}


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def forms(ran: list[str]) -> dict[str, Any]:
    rows = {"general": None, "alone": 1, "beside": 1}
    return {name: ToyForm(name, ran, num_rows) for name, num_rows in rows.items()}


@pytest.fixture
def signature(forms: dict[str, Any]) -> OpenvinoSignature:
    one_row = Forms(forms["alone"], forms["beside"])
    return OpenvinoSignature(Forms(forms["general"]), one_row=one_row, runs=RunCount())


def run(signature: OpenvinoSignature, inputs: Tensors) -> None:
    assert signature.try_run(inputs, outputs=()) == {}


def test_shapes_decide_and_requests_alone_have_all_threads(
    signature: OpenvinoSignature, ran: list[str]
) -> None:
    for inputs in (ONE, THREE, ONE):
        run(signature, inputs)
    assert ran == ["alone", "general", "alone"]


def test_requests_beside_each_other_have_few_threads_each(
    signature: OpenvinoSignature, forms: dict[str, Any], ran: list[str]
) -> None:
    forms["general"].meanwhile.append(lambda: run(signature, ONE))
    run(signature, THREE)
    assert ran == ["general", "beside"]


def test_requests_count_as_alone_once_several_were(
    signature: OpenvinoSignature, forms: dict[str, Any], ran: list[str]
) -> None:
    forms["alone"].meanwhile.append(lambda: run(signature, ONE))
    for _ in range(9):
        run(signature, ONE)
    assert ran == ["alone", *["beside"] * 8, "alone"]


def test_without_more_forms_there_is_the_general_one(forms: dict[str, Any], ran: list[str]) -> None:
    signature = OpenvinoSignature(Forms(forms["general"]), runs=RunCount())
    forms["general"].meanwhile.append(lambda: run(signature, ONE))
    run(signature, ONE)
    assert ran == ["general"] * 2


def test_all_forms_that_may_answer_are_compared(
    signature: OpenvinoSignature, ran: list[str]
) -> None:
    signature.try_all(ONE, outputs=())
    signature.try_all(THREE, outputs=())
    assert ran == ["alone", "beside", "general"]
