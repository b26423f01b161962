"""What is wrong with a request is said as OpenAI's clients understand it, and reaches no engine."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asgi_exchange import Answer, Request, exchange, get, post
from aspira.app import Server
from language_toys import serving_language_model
from serving_toys import single_model

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "no such type"}}}
DEEP = {"type": "json_schema", "json_schema": {"schema": nested(500)}}
DEEP_TOOL = {"type": "function", "function": {"name": "f", "parameters": nested(500)}}
PATTERN = "(" * 40 + "a"


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": MESSAGES, "max_tokens": 3, **fields}


def complete(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": "hi", "max_tokens": 3, **fields}


Ask = Callable[..., list[Answer]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Has one server answer, the same for all tests: a wrong request leaves nothing behind."""
    serving = serving_language_model(tmp_path_factory.mktemp("models") / "m")

    async def answer(server: Server, requests: Sequence[Request]) -> list[Answer]:
        answers = [await exchange(server.application, request=one) for one in requests]
        ((_, model),) = server._manager.ready()
        assert model.statistics.num_requests_waiting == 0
        return answers

    with asyncio.Runner() as runner:
        server = runner.run(serving.__aenter__())
        yield lambda *requests: runner.run(answer(server, requests))
        runner.run(serving.__aexit__(None, None, None))


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, b"", None),
        (CHAT, b"[1]", None),
        (CHAT, b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}', None),
        (CHAT, b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', None),
        (CHAT, chat(model=None), "model"),
        (CHAT, chat(model=""), "model"),
        (CHAT, chat(model=3), "model"),
        (CHAT, chat(model="m/versions/9999999999999999999"), "model"),
        (CHAT, chat(messages=[]), "messages"),
        (CHAT, chat(messages="hi"), "messages"),
        (CHAT, chat(messages=[7]), "messages[0]"),
        (CHAT, chat(messages=[{"role": "king", "content": "x"}]), "messages[0]"),
        (CHAT, chat(messages=[{"role": ["user"], "content": "x"}]), "messages[0]"),
        (CHAT, chat(messages=[*MESSAGES, {"role": "user"}]), "messages[1].content"),
        (CHAT, chat(messages=[{"role": "user", "content": 7}]), "messages[0].content"),
        (
            CHAT,
            chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
            "messages[0].content[0]",
        ),
        (CHAT, chat(messages=[{"role": "user", "content": "refuse me"}]), None),
        (CHAT, chat(messages=MESSAGES * 5000), "messages"),
        (CHAT, chat(n=0), None),
        (CHAT, chat(n=10**9), None),
        (CHAT, chat(n=1.5), "n"),
        (CHAT, chat(n=True), "n"),
        (CHAT, chat(max_tokens=0), None),
        (CHAT, chat(max_tokens=-1), None),
        (CHAT, chat(max_tokens="7"), "max_tokens"),
        (CHAT, chat(temperature=2.5), "temperature"),
        (CHAT, chat(temperature=-1), "temperature"),
        (CHAT, chat(temperature="hot"), "temperature"),
        (CHAT, chat(top_p=1.5), None),
        (CHAT, chat(top_logprobs=3), "top_logprobs"),
        (CHAT, chat(logprobs=True, top_logprobs=21), None),
        (CHAT, chat(logit_bias={"a": 1}), "logit_bias"),
        (CHAT, chat(logit_bias={"999999": 1}), None),
        (CHAT, chat(logit_bias={"7": 101}), None),
        (CHAT, chat(logit_bias={"7": "x"}), "logit_bias"),
        (CHAT, chat(logit_bias=[7]), "logit_bias"),
        (CHAT, chat(stop=[1]), "stop"),
        (CHAT, chat(stop=[""]), None),
        (CHAT, chat(stop=["x"] * 100), None),
        (CHAT, chat(seed="x"), "seed"),
        (CHAT, chat(stream="yes"), "stream"),
        (CHAT, chat(stream_options={"include_usage": True}), "stream_options"),
        (CHAT, chat(response_format={"type": "yaml"}), "response_format"),
        (CHAT, chat(response_format={"type": "json_schema"}), "response_format"),
        (CHAT, chat(response_format=SCHEMA), None),
        (CHAT, chat(response_format=DEEP), "response_format"),
        (CHAT, chat(guided_regex=PATTERN), None),
        (CHAT, chat(tools=["x"]), "tools"),
        (CHAT, chat(tools=[DEEP_TOOL], tool_choice="required"), "tools"),
        (CHAT, chat(stream=True, n=0), None),
        (COMPLETIONS, complete(prompt=None), "prompt"),
        (COMPLETIONS, complete(prompt=[]), "prompt"),
        (COMPLETIONS, complete(prompt=""), None),
        (COMPLETIONS, complete(prompt=[7, "x"]), "prompt"),
        (COMPLETIONS, complete(prompt=[-1]), None),
        (COMPLETIONS, complete(prompt=[{"a": 1}]), "prompt"),
        (COMPLETIONS, complete(prompt=["x"] * 129), "prompt"),
        (COMPLETIONS, complete(prompt=[1] * (2**20 + 1)), "prompt"),
        (COMPLETIONS, complete(echo=True, logprobs=1), "echo"),
        (COMPLETIONS, complete(suffix="x"), "suffix"),
        (COMPLETIONS, complete(n=1, best_of=4), "best_of"),
        ("/tokenize", {"model": "m"}, "prompt"),
        ("/detokenize", {"model": "m", "tokens": [-1]}, "tokens"),
        ("/detokenize", {"model": "m", "tokens": [2**31]}, "tokens"),
        ("/detokenize", {"model": "m", "tokens": ["a"]}, "tokens"),
        ("/detokenize", {"model": "m", "tokens": "abc"}, "tokens"),
    ],
)
def test_what_is_wrong_is_said(ask: Ask, path: str, body: object, param: str | None) -> None:
    wrong, right = ask(post(path, body=body), post(CHAT, body=chat()))
    assert (wrong.status, list(wrong.json)) == (400, ["error"])
    error = wrong.json["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]
    assert right.status == 200


@pytest.mark.parametrize("is_streamed", [True, False])
def test_what_does_not_fit_is_said_with_both_numbers(ask: Ask, is_streamed: bool) -> None:
    body = chat(max_tokens=400, stream=is_streamed)
    (answer,) = ask(post(CHAT, body=body))
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (400, "context_length_exceeded")
    assert "256" in error["message"]
    assert "402" in error["message"]


@pytest.mark.parametrize("model", ["nope", "m/versions/7"])
def test_an_unknown_model_is_not_found(ask: Ask, model: str) -> None:
    (answer,) = ask(post(CHAT, body=chat(model=model)))
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
    assert "/v1/models" in answer.json["error"]["message"]


def test_another_method_is_not_allowed(ask: Ask) -> None:
    (answer,) = ask(get(CHAT))
    assert (answer.status, answer.json["error"]["code"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


def test_a_slash_at_the_end_of_a_path_is_none_of_its_name(ask: Ask) -> None:
    (answer,) = ask(post(f"{CHAT}/", body=chat()))
    assert answer.status == 200


def test_a_body_that_is_too_large_is_not_read(ask: Ask) -> None:
    headers = {"content-length": str(1 << 40)}
    (answer,) = ask(post(CHAT, body=chat(), headers=headers))
    assert answer.status == 413


def test_a_compressed_body_is_refused(ask: Ask) -> None:
    (answer,) = ask(post(CHAT, body=chat(), headers={"content-encoding": "gzip"}))
    assert answer.status == 400


def test_what_has_no_effect_is_logged_once(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    body = chat(user="me", store=True, no_such_field=1, x="y")
    with caplog.at_level(logging.WARNING):
        answers = ask(*[post(CHAT, body=body)] * 3)
    assert [answer.status for answer in answers] == [200] * 3
    told = [record.getMessage() for record in caplog.records if "no effect" in record.message]
    assert len(told) == 2
    assert {"'no_such_field'" in one or "'x'" in one for one in told} == {True}


def test_the_clients_request_id_comes_back(ask: Ask) -> None:
    given, invented = ask(
        post(CHAT, body=chat(), headers={"x-request-id": "abc-1"}),
        post(CHAT, body=chat(), headers={"x-request-id": "no good\r\n"}),
    )
    assert (given.headers["x-request-id"], given.json["id"]) == ("abc-1", "chatcmpl-abc-1")
    assert "no good" not in invented.headers["x-request-id"]


def test_models_are_listed_for_both_kinds_of_clients(ask: Ask) -> None:
    listing, one = ask(get("/v1/models"), get("/v1/models/m"))
    card = {"id": "m", "object": "model", "created": 0, "owned_by": "aspira"}
    assert listing.json["object"] == "list"
    assert listing.json["data"] == [card]
    assert [model["name"] for model in listing.json["models"]] == ["m"]
    assert one.json.items() >= card.items()
    assert one.json["model_version_status"][0]["state"] == "AVAILABLE"


def test_the_api_is_left_out_where_only_the_originals_is_wanted(tmp_path: Path) -> None:
    settings = single_model(tmp_path / "m")
    strict = replace(settings, rest=replace(settings.rest, is_extended=False))

    async def run() -> Answer:
        async with serving_language_model(tmp_path / "m", settings=strict) as server:
            return await exchange(server.application, request=post(CHAT, body=chat()))

    answer = asyncio.run(run())
    assert answer.status == 400
    assert "Malformed request" in answer.error
