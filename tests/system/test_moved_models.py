"""A model whose base path is changed under load: the same version numbers, other files."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from aspira.testing.saved_models import write_half_plus_two
from system.load import Load
from system.server_process import ServerProcess

NUM_CLIENTS = 16
NUM_MOVES = 6
PLACES = {"a": 10.0, "b": 20.0}


class PlaceLoad(Load):
    """The place that a model was loaded from shows in its values, not in its version."""

    def _take(self, response: Any) -> None:
        self.seen.count(set(response.outputs["y"].float_val))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1 of a model in two places, which add 10 and 20."""
    directory = tmp_path_factory.mktemp("places")
    for place, offset in PLACES.items():
        write_half_plus_two(directory / place / "1", offset=offset)
    return directory


def move(server: ServerProcess, *, base_path: Path) -> None:
    request = model_management_pb2.ReloadConfigRequest()
    config = request.config.model_config_list.config.add()
    config.name, config.base_path, config.model_platform = "default", str(base_path), "tensorflow"
    with grpc.insecure_channel(server.grpc_target) as channel:
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        stub.HandleReloadConfigRequest(request, timeout=60)


def num_unloads(server: ServerProcess) -> int:
    return server.output().count("Done unloading servable version {name: default version: 1}")


@pytest.mark.parametrize("listener", ["envoy", "portable"])
def test_a_model_moves_to_and_fro_without_a_dropped_request(
    listener: str, places: Path, tmp_path: Path
) -> None:
    flags = (f"--listener={listener}", f"--model_base_path={places / 'a'}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        load = PlaceLoad(server)
        with load.running(NUM_CLIENTS):
            for number in range(1, NUM_MOVES + 1):
                move(server, base_path=places / ("b" if number % 2 else "a"))
                while num_unloads(server) < number and not load.seen.failures:
                    load.wait_for_answers(1)
                load.wait_for_answers(NUM_CLIENTS)
        assert load.seen.failures == []
        assert load.seen.answers.keys() == set(PLACES.values())


def test_as_the_original_a_moved_model_stays_what_it_was(places: Path, tmp_path: Path) -> None:
    flags = ("--compat=strict", f"--model_base_path={places / 'a'}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        load = PlaceLoad(server)
        with load.running(2):
            move(server, base_path=places / "b")
            load.wait_for_answers(NUM_CLIENTS)
        assert load.seen.failures == []
        assert load.seen.answers.keys() == {PLACES["a"]}
        assert server.output().count("New servable version") == 1
