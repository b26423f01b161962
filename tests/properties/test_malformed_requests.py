"""A hundred thousand damaged REST and gRPC requests: each gets an answer, and none is a bug."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from asgi_exchange import Answer, Request, exchange, post
from aspira.app import Server
from aspira.contracts.errors import Code
from aspira.settings import Settings
from aspira.testing.saved_models import write_half_plus_two
from grpc_exchange import call_request
from serving_toys import single_model

NUM_REQUESTS = 100_000
CONCURRENCY = 50
PREDICT = "/tensorflow.serving.PredictionService/Predict"

JSON_SEEDS = (
    b'{"instances": [1.0, 2.0, 5.0]}',
    b'{"signature_name": "serving_default", "instances": [{"x": [1, 2]}, {"x": [3, 4]}]}',
    b'{"inputs": {"x": [[1e3, -2.5], [NaN, Infinity]]}}',
    b'{"inputs": "text", "instances": {"b64": "aGk="}}',
    b'{"examples": [{"x": 1.0}], "context": {"y": "z"}}',
)
TOKENS = (
    b"[", b"]", b"{", b"}", b'"', b",", b":", b"null", b"true", b"-", b"1e999", b"\\u12", b"\xff",
    b"0", b"9223372036854775808", b'{"b64": "*"}', b"[[[[", b"\0", b" ", b"NaN", b'"x"',
)  # fmt: skip
# A damaged message is INTERNAL by gRPC's own rule; the text tells it from a bug.
DAMAGED = ("Failed to parse the request as", "The request body is not exactly one")
BUG = "The server met a bug"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    base_path: Path = tmp_path_factory.mktemp("model")
    write_half_plus_two(base_path / "1")
    return single_model(base_path)


def grpc_seeds() -> list[bytes]:
    seeds = []
    for value in (np.ones(3, np.float32), np.array([b"a"], object), np.ones((2, 2), np.int64)):
        request = predict_pb2.PredictRequest(output_filter=["y"])
        request.model_spec.name = "m"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(value))
        seeds.append(request.SerializeToString())
        request.inputs["x"].tensor_content = b""
        request.inputs["x"].float_val.extend([1.0, 2.0])
        request.model_spec.version.value = 1
        seeds.append(request.SerializeToString())
    return seeds


def damage(data: bytes, *, chance: random.Random) -> bytes:
    """A few bytes changed, cut, doubled or replaced by tokens."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(damaged) + 1)
        match chance.randrange(4):
            case 0:
                damaged[position : position + 1] = bytes([chance.randrange(256)])
            case 1:
                del damaged[position : position + chance.randint(1, 8)]
            case 2:
                damaged[position:position] = chance.choice(TOKENS)
            case 3:
                damaged[position:position] = damaged[: chance.randint(0, 20)]
    return bytes(damaged)


def damaged_requests(count: int) -> Iterator[Request]:
    chance = random.Random(20)
    messages = grpc_seeds()
    verbs = ("predict", "predict", "classify", "regress")
    for index in range(count):
        if index % 2:
            path = f"/v1/models/m:{chance.choice(verbs)}"
            yield post(path, body=damage(chance.choice(JSON_SEEDS), chance=chance))
            continue
        body = damage(chance.choice(messages), chance=chance)
        request = call_request(PREDICT, predict_pb2.PredictRequest())
        prefixed = b"\0" + len(body).to_bytes(4, "big") + body
        if index % 10 == 0:
            prefixed = damage(prefixed, chance=chance)
        yield replace(request, chunks=(prefixed,))


def problem(answer: Answer) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if b"met a bug" in answer.body or answer.status >= 500:
        return f"{answer.status} {answer.body!r}"
    code = answer.headers.get("grpc-status", "0")
    message = answer.headers.get("grpc-message", "")
    if BUG in message:
        return message
    if int(code) in {Code.UNKNOWN, Code.INTERNAL} and not message.startswith(DAMAGED):
        return f"{code} {message}"
    return ""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_damaged_requests_are_answered_and_none_is_a_bug(settings: Settings) -> None:
    async def ask_all() -> list[str]:
        server = Server(settings)
        await server.start()
        requests = damaged_requests(NUM_REQUESTS)
        problems: list[str] = []

        async def ask_some() -> None:
            for request in requests:
                answer = await exchange(server.application, request=request)
                if found := problem(answer):
                    problems.append(f"{request.chunks}: {found}")

        await asyncio.gather(*(ask_some() for _ in range(CONCURRENCY)))
        assert await server.drain(grace_s=60)
        return problems

    assert asyncio.run(ask_all()) == []
