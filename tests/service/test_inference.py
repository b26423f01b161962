import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from aspira.batching.loader import BatchingLoader
from aspira.batching.servable import BatchedServable
from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ServingError,
)
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version, VersionLabel
from aspira.contracts.inference import PredictRequest
from aspira.contracts.tensors import Tensors
from aspira.lifecycle.manager import Manager
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.source import Aspired
from aspira.routing.table import RoutingTable
from aspira.service.inference import InferenceService, Router
from aspira.testing.toy_servable import ToyServable
from batching_toys import make_batching_loader, make_context
from example_toys import FixedServable, signature_of
from example_toys import play as play_examples

M = ModelName("m")
X = np.float32([1, 2, 5])
STABLE = VersionLabel("stable")


class OffsetLoader:
    """Version N answers y = x / 2 + N."""

    def __init__(self, version: int) -> None:
        self._version = version

    def load(self) -> ToyServable:
        return ToyServable(offset=self._version)


def play(scenario: Callable[[InferenceService], Awaitable[None]]) -> None:
    """With versions 1 and 2 of `m` ready, 1 labelled stable and 9, which is not there, gone."""

    async def act() -> None:
        context = make_context()

        def make_loader(servable_id: ServableId, *, path: Path) -> BatchingLoader:
            return make_batching_loader(
                OffsetLoader(servable_id.version), context=context, servable_id=servable_id
            )

        manager = Manager[BatchedServable](
            make_loader, options=LifecycleOptions(), events=EventBus()
        )
        manager.aspire(Aspired(M, {Version(1): Path("/m/1"), Version(2): Path("/m/2")}))
        await manager.wait_until(lambda: all(s.state.value == "ready" for s in manager.statuses(M)))
        labels = {M: {STABLE: Version(1), VersionLabel("gone"): Version(9)}}
        await scenario(
            InferenceService(manager, router=Router(RoutingTable(labels)), clock=SystemClock())
        )
        await manager.stop()

    asyncio.run(act())


def request(
    spec: ModelSpec | None = None,
    *,
    inputs: Tensors | None = None,
    output_filter: tuple[str, ...] = (),
    deadline: float | None = None,
) -> PredictRequest:
    given = {"x": X} if inputs is None else inputs
    return PredictRequest(spec or ModelSpec(M), given, output_filter, deadline)


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (ModelSpec(M), 2),
        (ModelSpec(M, signature_name="serving_default"), 2),
        (ModelSpec(M, version=Version(1)), 1),
        (ModelSpec(M, label=STABLE), 1),
    ],
)
@pytest.mark.parametrize("output_filter", [(), ("y",)])
def test_predict(spec: ModelSpec, version: int, output_filter: tuple[str, ...]) -> None:
    async def scenario(service: InferenceService) -> None:
        response = await service.predict(request(spec, output_filter=output_filter))
        assert response.servable_id == ServableId(M, Version(version))
        assert response.signature_name == "serving_default"
        assert response.outputs.keys() == {"y"}
        np.testing.assert_array_equal(response.outputs["y"], X / 2 + np.float32(version))

    play(scenario)


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (
            request(ModelSpec(ModelName("x"))),
            NotFound,
            "Servable not found for request: Latest(x)",
        ),
        (
            request(ModelSpec(M, version=Version(7))),
            NotFound,
            "Servable not found for request: Specific(m, 7)",
        ),
        (
            request(ModelSpec(M, label=VersionLabel("canary"))),
            InvalidArgument,
            "Unrecognized servable version label: canary",
        ),
        (
            request(ModelSpec(M, label=VersionLabel("gone"))),
            NotFound,
            "Servable not found for request: Specific(m, 9)",
        ),
        (
            request(ModelSpec(M, signature_name="s")),
            FailedPrecondition,
            'Serving signature key "s" not found.',
        ),
        (
            request(inputs={}),
            InvalidArgument,
            (
                "input size does not match signature: 0!=1 len({}) != len({x})."
                " Sent extra: {}. Missing but required: {x}."
            ),
        ),
        (
            request(output_filter=("z",)),
            InvalidArgument,
            "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
        ),
        (request(deadline=0.0), DeadlineExceeded, "Timed out waiting for notification"),
    ],
)
def test_refusals(asked: PredictRequest, error: type[ServingError], text: str) -> None:
    async def scenario(service: InferenceService) -> None:
        with pytest.raises(error) as caught:
            await service.predict(asked)
        assert caught.value.message == text
        # Nothing keeps its lease: the end of the scenario waits for all of them.

    play(scenario)


def test_several_predictions_with_one_lease() -> None:
    async def scenario(service: InferenceService) -> None:
        with service.lease(ModelSpec(M, label=STABLE)) as lease:
            for _ in range(2):
                response = await service.predict_leased(request(), lease=lease)
                assert response.servable_id == ServableId(M, Version(1))
                assert response.outputs["y"].tolist() == [1.5, 2.0, 3.5]

    play(scenario)


def test_many_at_once() -> None:
    async def scenario(service: InferenceService) -> None:
        requests = [request(inputs={"x": np.float32([number])}) for number in range(100)]
        responses = await asyncio.gather(*map(service.predict, requests))
        found = [float(response.outputs["y"][0]) for response in responses]
        assert found == [number / 2 + 2 for number in range(100)]

    play(scenario)


@pytest.mark.parametrize("method_name", ["", "tensorflow/serving/other"])
def test_method_names_are_checked_if_told_so(method_name: str) -> None:
    servable = FixedServable({"serving_default": signature_of("scores", method_name=method_name)})

    async def scenario(service: InferenceService) -> None:
        with pytest.raises(Internal) as caught:
            await service.predict(request(inputs={}))
        assert caught.value.message == (
            "Expected prediction signature method_name to be one of {tensorflow/serving/predict, "
            f"tensorflow/serving/classify, tensorflow/serving/regress}}. Was: {method_name}"
        )

    play_examples(scenario, servable=servable, is_method_name_checked=True)


@pytest.mark.parametrize("method_name", ["predict", "classify", "regress"])
def test_predict_may_ask_signatures_of_all_three_methods(method_name: str) -> None:
    signature = signature_of("scores", method_name=f"tensorflow/serving/{method_name}")

    async def scenario(service: InferenceService) -> None:
        asked = request(inputs={"inputs": np.array([b""], object)})
        response = await service.predict(asked)
        assert response.outputs.keys() == {"scores"}

    servable = FixedServable({"serving_default": signature})
    play_examples(scenario, servable=servable, is_method_name_checked=True)
