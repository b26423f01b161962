import asyncio
from pathlib import Path
from typing import Any

import pytest
from tensorflow_serving.apis import predict_pb2

from asgi_exchange import Request, exchange
from aspira.batching.servable import BatchedServable
from aspira.frontends.priority import parse_priority
from grpc_exchange import call_request
from serving_toys import running, single_model, write_version

PREDICTION = "/tensorflow.serving.PredictionService"


@pytest.mark.parametrize(
    ("value", "priority"),
    [
        (b"u=0", 3),
        (b"u=3", 0),
        (b"u=7", -4),
        (b"i, u=1", 2),
        (b"u=5, i", -2),
        (b"u = 2", 1),
        (b"u=6;x=1", -3),
        (b"", 0),
        (b"i", 0),
        (b"u=8", 0),
        (b"u=12", 0),
        (b"u=-1", 0),
        (b"xu=1", 0),
        (b"high", 0),
        (b"," * 100_000 + b"u=1", 0),
    ],
)
def test_urgency_is_steps_from_the_default(value: bytes, priority: int) -> None:
    assert parse_priority(value) == priority


def predict_call() -> Request:
    message = predict_pb2.PredictRequest()
    message.model_spec.name = "m"
    message.inputs["x"].dtype = 1
    message.inputs["x"].float_val.append(1.0)
    return call_request(f"{PREDICTION}/Predict", message)


def rest_predict() -> Request:
    return Request("POST", "/v1/models/m:predict", chunks=(b'{"instances": [1.0]}',))


@pytest.mark.parametrize("make_request", [predict_call, rest_predict])
@pytest.mark.parametrize(("headers", "priority"), [({}, 0), ({"priority": "u=1"}, 2)])
def test_the_priority_reaches_the_queue(
    make_request: Any,
    headers: dict[str, str],
    priority: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    run = BatchedServable.run

    async def note(self: BatchedServable, *args: Any, **options: Any) -> Any:
        seen.append(options["priority"])
        return await run(self, *args, **options)

    async def act() -> None:
        write_version(tmp_path / "m", version=1)
        async with running(single_model(tmp_path / "m")) as server:
            request = make_request()
            request.headers.update(headers)
            answer = await exchange(server.application, request=request)
            assert answer.status == 200

    monkeypatch.setattr(BatchedServable, "run", note)
    asyncio.run(act())
    assert seen == [priority]
