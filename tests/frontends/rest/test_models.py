"""What the listing tells of versions that serve."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asgi_exchange import exchange, get, post
from aspira.app import Server
from aspira.batching.options import BatchingOptions
from aspira.contracts.events import EventBus
from aspira.contracts.servable import Servable, SignatureRuntime
from aspira.settings import Settings
from aspira.testing.toy_servable import ToyLoader, ToyServable
from serving_toys import running, single_model, write_version

NOT_COMPARED = SignatureRuntime("tensorflow", "it works on string")
FASTER = SignatureRuntime("openvino", "faster", "bf16", "4e-7 of the largest", 75.3e-6, 20.04e-6)


class AcceleratedToy(ToyServable):
    @property
    def runtimes(self) -> Mapping[str, SignatureRuntime]:
        return {"serving_default": FASTER, "lookup": NOT_COMPARED}


class AcceleratedLoader:
    def load(self) -> Servable:
        return AcceleratedToy()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_version(tmp_path / "m", version=1)
    batching = BatchingOptions(mode="auto", latency_target_s=0.1)
    return replace(single_model(tmp_path / "m"), batching=batching)


async def listed_version(server: Server) -> dict[str, Any]:
    answer = await exchange(server.application, request=get("/v1/models"))
    (version,) = answer.json["models"][0]["model_version_status"]
    found: dict[str, Any] = version
    return found


def test_what_serves_each_signature_is_told_and_why(settings: Settings) -> None:
    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> AcceleratedLoader:
        return AcceleratedLoader()

    async def run() -> None:
        async with running(settings, make_runtime_loader=make_loader) as server:
            version = await listed_version(server)
        assert version["signature_names"] == ["serving_default"]
        assert version["signature_runtimes"] == {
            "lookup": {"runtime": "tensorflow", "reason": "it works on string", "precision": "f32"},
            "serving_default": {
                "runtime": "openvino",
                "reason": "faster",
                "precision": "bf16",
                "difference": "4e-7 of the largest",
                "tensorflow_usecs": 75.3,
                "accelerated_usecs": 20.0,
            },
        }

    asyncio.run(run())


def test_what_batching_has_learned_is_told(settings: Settings) -> None:
    def make_loader(path: Path, *, settings: Settings, events: EventBus) -> ToyLoader:
        return ToyLoader()

    async def run() -> None:
        request = post("/v1/models/m:predict", body={"instances": [2.0, 3.0]})
        async with running(settings, make_runtime_loader=make_loader) as server:
            version = await listed_version(server)
            assert "signature_runtimes" not in version
            assert version["batching"] == {"requests_waiting": 0, "batch_size_limit": 1}
            learned = version["batching"]
            # A run is learned from a moment after it was answered.
            while "run_time_fixed_usecs" not in learned:
                assert (await exchange(server.application, request=request)).status == 200
                learned = (await listed_version(server))["batching"]
        assert learned["run_time_fixed_usecs"] + 2 * learned["run_time_per_row_usecs"] > 0
        assert learned["batch_size_limit"] > 1

    asyncio.run(run())
