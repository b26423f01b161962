"""`/v1/embeddings` in process, over a tiny encoder and the batcher."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from asgi_exchange import Answer, exchange, get, post
from aspira.app import Server
from aspira.batching.servable import BatchedServable
from encoder_models import HIDDEN, write_encoder, write_sentence_files
from language_toys import ToyFinder, write_language_model
from serving_toys import (
    config_entry,
    listed_models,
    make_toy_loader,
    single_model,
    write_version,
)

PATH = "/v1/embeddings"


@asynccontextmanager
async def serving(tmp_path: Path, **config: Any) -> AsyncIterator[Server]:
    """An encoder `e`, a toy language model `m` and a toy model `toy`."""
    write_encoder(tmp_path / "e" / "1", **config)
    write_sentence_files(tmp_path / "e" / "1")
    write_language_model(tmp_path / "m")
    write_version(tmp_path / "toy", version=1)
    entries = [config_entry(tmp_path / name) for name in ("e", "m", "toy")]
    server = Server(
        listed_models(tmp_path / "models.config", entries=entries),
        make_runtime_loader=make_toy_loader,
        find_language_model=ToyFinder(),
    )
    await server.start()
    try:
        yield server
    finally:
        assert await server.drain(grace_s=30)


def ask(tmp_path: Path, *bodies: dict[str, Any], path: str = PATH, **config: Any) -> list[Answer]:
    async def run() -> list[Answer]:
        async with serving(tmp_path, **config) as server:
            requests = [post(path, body={"model": "e", **body}) for body in bodies]
            return [await exchange(server.application, request=one) for one in requests]

    return asyncio.run(run())


def vectors(answer: Answer) -> np.ndarray[Any, Any]:
    assert answer.status == 200, answer.body
    data = answer.json["data"]
    assert [one["index"] for one in data] == list(range(len(data)))
    return np.array([one["embedding"] for one in data], np.float32)


def test_every_form_of_input(tmp_path: Path) -> None:
    text, texts, ids, lists = ask(
        tmp_path,
        {"input": "a b"},
        {"input": ["a b", "c"]},
        {"input": [0, 4, 5, 2]},
        {"input": [[0, 4, 5, 2], [0, 6, 2]]},
    )
    assert text.json | {"data": None} == {
        "object": "list",
        "data": None,
        "model": "e",
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    }
    assert texts.json["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert vectors(texts).shape == (2, HIDDEN)
    np.testing.assert_allclose(np.linalg.norm(vectors(texts), axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors(text)[0], vectors(texts)[0], atol=1e-6)
    np.testing.assert_allclose(vectors(ids), vectors(text), atol=1e-6)
    np.testing.assert_allclose(vectors(lists), vectors(texts), atol=1e-6)


def test_base64_is_the_same_floats(tmp_path: Path) -> None:
    body = {"input": "a", "encoding_format": "base64"}
    plain, encoded = ask(tmp_path, {"input": "a"}, body)
    packed = base64.b64decode(encoded.json["data"][0]["embedding"])
    np.testing.assert_array_equal(np.frombuffer(packed, "<f4"), vectors(plain)[0])


def test_dimensions_only_as_trained(tmp_path: Path) -> None:
    whole, short, wrong = ask(
        tmp_path,
        {"input": "a"},
        {"input": "a", "dimensions": 4},
        {"input": "a", "dimensions": 5},
        matryoshka_dimensions=[4],
    )
    cut = vectors(whole)[0, :4]
    np.testing.assert_allclose(vectors(short)[0], cut / np.linalg.norm(cut), atol=1e-6)
    assert wrong.status == 400
    assert "dimensions = 5 is not what this model was trained for: 4, 16" in wrong.body.decode()


BAD_REQUESTS: Any = [
    ({}, "input", "invalid_argument"),
    ({"input": []}, "input", "invalid_argument"),
    ({"input": 3}, "input", "invalid_argument"),
    ({"input": ""}, "input[0]", "invalid_argument"),
    ({"input": ["a", ""]}, "input[1]", "invalid_argument"),
    ({"input": ["a", []]}, "input[1]", "invalid_argument"),
    ({"input": ["a", 3]}, "input[1]", "invalid_argument"),
    ({"input": [[2**40]]}, "input[0]", "invalid_argument"),
    ({"input": [[True]]}, "input[0]", "invalid_argument"),
    ({"input": ["a"] * 2049}, "input", "invalid_argument"),
    ({"input": [[24]]}, None, "invalid_argument"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format", "invalid_argument"),
    ({"input": "a", "dimensions": 0}, "dimensions", "invalid_argument"),
    ({"input": "a", "dimensions": 8}, None, "invalid_argument"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_argument"),
    ({"input": "a " * 60}, None, "context_length_exceeded"),
    ({"input": "a", "model": "nope"}, None, "model_not_found"),
]


def test_bad_requests_say_what_is_wrong(tmp_path: Path) -> None:
    answers = ask(tmp_path, *(body for body, _, _ in BAD_REQUESTS))
    for answer, (body, param, code) in zip(answers, BAD_REQUESTS, strict=True):
        error = answer.json["error"]
        assert (error["param"], error["code"]) == (param, code), body
        assert answer.status == (404 if code == "model_not_found" else 400)


def test_a_long_text_is_cut_where_that_is_asked_for(tmp_path: Path) -> None:
    (answer,) = ask(tmp_path, {"input": "a " * 60, "truncate_prompt_tokens": -1})
    assert answer.json["usage"]["prompt_tokens"] == 34


def test_models_of_other_kinds_tell_what_to_ask(tmp_path: Path) -> None:
    language, toy = ask(tmp_path / "1", *({"input": "a", "model": name} for name in ("m", "toy")))
    assert (language.status, toy.status) == (400, 400)
    assert "ask it by /v1/chat/completions" in language.body.decode()
    assert "/v1/models/toy:predict" in toy.body.decode()
    messages = [{"role": "user", "content": "hi"}]
    (chat,) = ask(tmp_path / "2", {"messages": messages}, path="/v1/chat/completions")
    assert chat.status == 400
    assert "embedding model" in chat.body.decode()
    assert "/v1/embeddings" in chat.body.decode()


def test_it_is_listed_and_answers_predict_too(tmp_path: Path) -> None:
    async def run() -> tuple[Answer, ...]:
        async with serving(tmp_path) as server:
            requests = (
                get("/v1/models"),
                get("/v1/models/e"),
                post("/v1/models/e:predict", body={"instances": ["a b", "c"]}),
                post(PATH, body={"model": "e", "input": ["a b", "c"]}),
                post("/v1/models/e:predict", body={"signature_name": "x", "instances": ["a"]}),
            )
            return tuple([await exchange(server.application, request=one) for one in requests])

    listing, card, predicted, embedded, unknown = asyncio.run(run())
    assert [one["id"] for one in listing.json["data"]] == ["m", "e"]
    assert card.json["object"] == "model"
    predictions = np.array(predicted.json["predictions"])
    np.testing.assert_allclose(predictions, vectors(embedded), atol=1e-6)
    assert "ask /v1/embeddings" in unknown.body.decode()


def test_texts_of_several_clients_share_runs(tmp_path: Path) -> None:
    """Twenty requests at once, of lengths that differ, in few runs; each gets its own vectors."""

    async def run() -> None:
        async with serving(tmp_path) as server:
            runs: list[int] = []
            ((_, model),) = [found for found in server._manager.ready() if found[0].name == "e"]
            assert isinstance(model, BatchedServable)
            inner = model._servable
            once = inner.run

            def counted(name: str, *, inputs: Any, outputs: Any) -> Any:
                runs.append(len(inputs["num_tokens"]))
                return once(name, inputs=inputs, outputs=outputs)

            inner.run = counted  # type: ignore[method-assign]
            texts = ["a b c d e f g h i j k l"[: 2 * number + 1] for number in range(12)]
            bodies = [{"model": "e", "input": [text, "t"]} for text in texts]
            requests = [post(PATH, body=body) for body in bodies]
            together = await asyncio.gather(
                *(exchange(server.application, request=one) for one in requests)
            )
            assert sum(runs) == 24
            assert len(runs) < 12
            alone = [await exchange(server.application, request=one) for one in requests]
            for one, other in zip(together, alone, strict=True):
                np.testing.assert_allclose(vectors(one), vectors(other), atol=1e-6)

    asyncio.run(run())


def test_a_request_of_many_does_not_hold_up_a_single_text(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as server:
            many = post(PATH, body={"model": "e", "input": ["a b c"] * 2048})
            bulk = asyncio.create_task(exchange(server.application, request=many))
            ((_, model),) = [found for found in server._manager.ready() if found[0].name == "e"]
            assert isinstance(model, BatchedServable)
            while not model.statistics().num_waiting:
                await asyncio.sleep(0)
            one = post(PATH, body={"model": "e", "input": "b"})
            answer = await exchange(server.application, request=one)
            assert answer.status == 200
            assert not bulk.done()
            assert vectors(await bulk).shape == (2048, HIDDEN)

    asyncio.run(run())


def test_a_full_queue_is_said_so(tmp_path: Path) -> None:
    write_encoder(tmp_path / "e" / "1")
    settings = single_model(tmp_path / "e", name="e")
    settings = replace(settings, batching=replace(settings.batching, max_queued_requests=40))

    async def run() -> Answer:
        server = Server(settings, make_runtime_loader=make_toy_loader)
        await server.start()
        try:
            request = post(PATH, body={"model": "e", "input": ["a"] * 200})
            return await exchange(server.application, request=request)
        finally:
            assert await server.drain(grace_s=30)

    answer = asyncio.run(run())
    assert answer.status == 503
    assert "queue" in answer.body.decode()
