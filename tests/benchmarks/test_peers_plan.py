"""Each peer is measured beside Aspira, by requests that it understands."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

SHAPES = {"half_plus_two": (3,), "mlp": (1, 128), "mobilenet": (1, 2, 2, 3)}


@pytest.fixture
def plan(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("peers_plan")


@pytest.fixture
def models(import_benchmark: Callable[[str], ModuleType]) -> list[Any]:
    make = import_benchmark("models").Model
    return [
        make(
            name,
            name,
            input_name="x",
            output_name="y",
            input=np.zeros(shape, np.float32),
            answer=np.zeros(shape, np.float32),
            directory=Path("/models") / name,
        )
        for name, shape in SHAPES.items()
    ]


def plan_titles(
    plan: ModuleType, models: list[Any], *, peers: list[str], aspiras: list[str]
) -> list[str]:
    places = plan.Places(scratch=Path("/scratch"), model_config=Path("/scratch/models.config"))
    steps = plan.plan_peers(
        {peer: Path("/python") for peer in peers},
        models=models,
        aspiras=[plan.Aspira(title) for title in aspiras],
        places=places,
    )
    return [step.title for step in steps]


def test_every_peer_is_next_to_an_aspira(plan: ModuleType, models: list[Any]) -> None:
    peers = ["mosec", "litserve", "mlserver", "fastapi"]
    assert plan_titles(plan, models, peers=peers, aspiras=["Ours"]) == [
        "mosec", "Ours", "LitServe", "MLServer", "Ours", "FastAPI",
    ]  # fmt: skip


def test_variants_take_turns_and_none_is_left_out(plan: ModuleType, models: list[Any]) -> None:
    assert plan_titles(plan, models, peers=["mosec"], aspiras=["A", "B"]) == ["mosec", "A", "B"]
    peers = ["mosec", "litserve", "mlserver", "bentoml", "fastapi"]
    titles = plan_titles(plan, models, peers=peers, aspiras=["A", "B"])
    assert titles == ["mosec", "A", "LitServe", "MLServer", "B", "BentoML", "FastAPI", "A"]


def test_all_peers_and_aspira_are_called_for_every_model(
    plan: ModuleType, models: list[Any]
) -> None:
    places = plan.Places(scratch=Path("/scratch"), model_config=Path("/scratch/models.config"))
    pythons = {subject.name: Path("/python") for subject in plan.SUBJECTS}
    ours = plan.Aspira("Aspira", ("--flag=1",))
    steps = plan.plan_peers(pythons, models=models, aspiras=[ours], places=places)
    ports = plan.Ports(grpc=1111, rest=2222)
    for step in steps:
        groups = {case.key.rsplit("/", 1)[0] for case in step.cases}
        assert {"half_plus_two/rest", "mlp/rest", "mobilenet/binary"} <= groups
        assert len({case.key for case in step.cases}) == len(step.cases)
        command = step.make_command(ports)
        assert any("2222" in word for word in command)
        assert ("--flag=1" in command) is (step.title == "Aspira")


def test_the_model_config_is_one_that_aspira_reads(plan: ModuleType, models: list[Any]) -> None:
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    config = text_format.Parse(plan.format_model_config(models), ModelServerConfig())
    assert [(each.name, each.base_path) for each in config.model_config_list.config] == [
        (name, f"/models/{name}/versions") for name in SHAPES
    ]


def test_aspira_with_flags(plan: ModuleType) -> None:
    aspira = plan.parse_aspira("Aspira, batching: --enable_batching=true --x=1")
    assert aspira == plan.Aspira("Aspira, batching", ("--enable_batching=true", "--x=1"))
    assert plan.parse_aspira("Plain:") == plan.Aspira("Plain")


@pytest.mark.parametrize("text", ["", "Aspira", ": --flag", "Aspira: flag"])
def test_aspira_with_flags_that_are_none(plan: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form 'NAME: --flag=value'"):
        plan.parse_aspira(text)
