"""What becomes of the requests of clients that leave before they are answered."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from asgi_exchange import Request, ScriptedClient, exchange, get, post
from aspira.app import Server
from aspira.batching.options import BatchingOptions
from aspira.contracts.events import EventBus
from aspira.contracts.tensors import DataType, Tensors
from aspira.frontends import departures
from aspira.settings import DEFAULT_METRICS_PATH, Settings
from aspira.testing.toy_servable import ToyServable
from grpc_exchange import call_request
from serving_toys import running, single_model, write_version


class HeldServable(ToyServable):
    """Runs nothing until it is released; notes what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.released = threading.Event()
        self.seen: list[float] = []

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.seen.extend(inputs["x"].ravel().tolist())
        self.started.set()
        assert self.released.wait(30)
        return super().run(signature_name, inputs=inputs, outputs=outputs)

    def load(self) -> ToyServable:
        return self

    def make_runtime_loader(
        self, path: Path, *, settings: Settings, events: EventBus
    ) -> "HeldServable":
        return self


def rest_request(value: float) -> Request:
    return post("/v1/models/m:predict", body={"inputs": [value]})


def grpc_request(value: float) -> Request:
    message = PredictRequest()
    message.model_spec.name = "m"
    tensor = message.inputs["x"]
    tensor.dtype = DataType.FLOAT
    tensor.tensor_shape.dim.add(size=1)
    tensor.float_val.append(value)
    return call_request("/tensorflow.serving.PredictionService/Predict", message)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(departures, "_TICK_S", 0.0)
    write_version(tmp_path / "m", version=1)
    return replace(single_model(tmp_path / "m"), batching=BatchingOptions(num_threads=1))


async def leave_while_waiting(server: Server, request: Request) -> None:
    client = ScriptedClient(request)
    client.leave()
    async with asyncio.timeout(10):
        await server.application(request.scope, client.receive, client.send)


@pytest.mark.parametrize(
    ("make_request", "entrypoint"), [(rest_request, "rest"), (grpc_request, "grpc")]
)
def test_queued_work_of_a_client_that_left_is_dropped_and_counted(
    settings: Settings, make_request: type[Request], entrypoint: str
) -> None:
    servable = HeldServable()

    async def run() -> list[str]:
        async with running(settings, make_runtime_loader=servable.make_runtime_loader) as server:
            first = asyncio.create_task(exchange(server.application, request=make_request(1.0)))
            try:
                await asyncio.to_thread(servable.started.wait, 30)
                await leave_while_waiting(server, make_request(2.0))
            finally:
                servable.released.set()
            await first
            await exchange(server.application, request=make_request(3.0))
            page = await exchange(server.application, request=get(DEFAULT_METRICS_PATH))
            return page.body.decode().splitlines()

    lines = asyncio.run(run())
    assert servable.seen == [1.0, 3.0]
    labels = f'model_name="m",version="",api="predict",entrypoint="{entrypoint}"'
    assert f':aspira:request_count{{{labels},status="CANCELLED"}} 1' in lines
