from pathlib import Path

import pytest

from aspira.contracts.events import AcceleratorProblem, EventBus, LifecycleEvent
from aspira.runtimes import accelerators
from aspira.runtimes.accelerator_options import AcceleratorOptions
from aspira.runtimes.accelerators import AcceleratorFactory
from aspira.runtimes.signature_graph import StaysOnTensorflow


def test_without_openvino_auto_stays_on_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "has_openvino", lambda: False)
    factory = AcceleratorFactory(AcceleratorOptions(kind="auto"), Path("/m/1"), EventBus())
    with pytest.raises(StaysOnTensorflow, match=r"pip install 'aspira\[openvino\]'"):
        factory.make_choice()


@pytest.mark.parametrize(("kind", "is_decisive"), [("auto", True), ("openvino", False)])
def test_speed_counts_unless_openvino_was_asked_for(
    kind: str, is_decisive: bool, tmp_path: Path
) -> None:
    options = AcceleratorOptions(kind=kind, cache_dir=str(tmp_path), batch_sizes=(1, 7))
    choice = AcceleratorFactory(options, Path("/m/1"), EventBus()).make_choice()
    assert choice.is_speed_decisive == is_decisive
    assert choice.batch_sizes == (1, 7)
    assert choice.accelerator.name == "openvino"


def test_a_user_without_a_home_is_served_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("no home")

    told: list[LifecycleEvent] = []
    events = EventBus()
    events.subscribe_lifecycle(told.append)
    monkeypatch.setattr(accelerators, "default_cache_dir", fail)
    AcceleratorFactory(AcceleratorOptions(kind="openvino"), Path("/m/1"), events).make_choice()
    (problem,) = told
    assert isinstance(problem, AcceleratorProblem)
    assert "set --compile_cache_dir" in problem.message
