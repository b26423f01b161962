"""The Open Inference Protocol over HTTP, through the whole server, with toy models."""

import asyncio
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asgi_exchange import Answer, Request, exchange, get, post, read_answer
from aspira.contracts.events import RequestEnded
from aspira.settings import Settings
from language_toys import (
    HeldDecoder,
    begin_request,
    check_that_leaving_ends_the_work,
    expected,
    serving_language_model,
    until,
    with_options,
)
from serving_toys import ask, running, single_model, write_version

GENERATE = "/v2/models/m/generate"
STREAM = "/v2/models/m/generate_stream"
INFER = "/v2/models/m/infer"


def text(prompt: str, **fields: Any) -> dict[str, Any]:
    return {"text_input": prompt, "temperature": 0, "max_tokens": 9, **fields}


def ask_text(tmp_path: Path, *requests: Request) -> list[Answer]:
    async def run() -> list[Answer]:
        async with serving_language_model(tmp_path / "m") as server:
            return [await exchange(server.application, request=one) for one in requests]

    return asyncio.run(run())


def ask_tensors(tmp_path: Path, *requests: Request) -> list[Answer]:
    write_version(tmp_path / "m", version=2)
    return ask(single_model(tmp_path / "m"), *requests)


def events_of(answer: Answer) -> list[Any]:
    """The data of events; their stream simply ends."""
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = answer.body.decode().split("\n\n")
    assert blocks.pop() == ""
    return [json.loads(b.removeprefix("data: ")) for b in blocks if not b.startswith(":")]


SAID, REASON, NUM_TOKENS = expected("hi", max_tokens=9)


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({}, {"text_output": "hi" + SAID}),
        ({"exclude_input_in_output": True}, {"text_output": SAID}),
        ({"stream": True, "exclude_input_in_output": True}, {"text_output": SAID}),
        (
            {
                "return_finish_reason": True,
                "return_num_input_tokens": True,
                "return_num_output_tokens": True,
            },
            {
                "text_output": "hi" + SAID,
                "finish_reason": REASON,
                "num_input_tokens": 2,
                "num_output_tokens": NUM_TOKENS,
            },
        ),
        ({"id": "7"}, {"id": "7", "text_output": "hi" + SAID}),
        ({"n": 2}, {"text_output": ["hi" + SAID] * 2}),
    ],
)
def test_a_text_is_generated_whole(
    tmp_path: Path, fields: dict[str, Any], output: dict[str, Any]
) -> None:
    (answer,) = ask_text(tmp_path, post(GENERATE, body=text("hi", **fields)))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {"model_name": "m", "model_version": "1", **output}


@pytest.mark.parametrize(
    "body",
    [
        {"text_input": "hi", "parameters": {"temperature": 0, "max_tokens": 9}},
        {"text_input": "hi", "parameters": {"temperature": "0", "max_tokens": "9"}},
        {"text_input": "hi", "sampling_parameters": '{"temperature": "0", "max_tokens": 9}'},
        {"text_input": "hi", "sampling_parameters": {"temperature": 0, "max_tokens": 9}},
        {"text_input": "hi", "max_tokens": 9, "parameters": {"temperature": 0, "max_tokens": 3}},
    ],
)
@pytest.mark.parametrize("path", [GENERATE, "/v2/models/m/versions/1/generate"])
def test_options_may_come_in_several_places(tmp_path: Path, body: Any, path: str) -> None:
    (answer,) = ask_text(tmp_path, post(path, body=body))
    assert answer.json["text_output"] == "hi" + SAID


def test_a_text_is_streamed(tmp_path: Path) -> None:
    body = text("hi", id="a", return_finish_reason=True, return_num_output_tokens=True)
    (answer,) = ask_text(tmp_path, post(STREAM, body=body))
    events = events_of(answer)
    assert "".join(event["text_output"] for event in events) == SAID
    assert [event["finish_reason"] for event in events[:-1]] == ["None"] * (len(events) - 1)
    assert events[-1]["finish_reason"] == REASON
    assert sum(event["num_output_tokens"] for event in events) == NUM_TOKENS
    assert {(e["id"], e["model_name"], e["model_version"]) for e in events} == {("a", "m", "1")}


def test_a_stream_that_is_to_be_none_has_one_event(tmp_path: Path) -> None:
    (answer,) = ask_text(tmp_path, post(STREAM, body=text("hi", stream=False)))
    (event,) = events_of(answer)
    assert event["text_output"] == "hi" + SAID


def test_log_probabilities_are_told(tmp_path: Path) -> None:
    body = text("hi", logprobs=2, return_logprobs=True, return_cumulative_logprob=True)
    (answer,) = ask_text(tmp_path, post(GENERATE, body=body))
    entries = json.loads(answer.json["logprobs"])
    assert len(entries) == NUM_TOKENS
    best = [next(iter(entry.values())) for entry in entries]
    assert [one["rank"] for one in best] == [1] * NUM_TOKENS
    assert sum(one["logprob"] for one in best) == pytest.approx(answer.json["cumulative_logprob"])


def test_a_stream_tells_the_log_probability_of_all_so_far(tmp_path: Path) -> None:
    """An answer for each choice at least, however slow the reader is."""
    options = {"n": 2, "return_logprobs": True, "return_cumulative_logprob": True}
    (answer,) = ask_text(tmp_path, post(STREAM, body=text("hi", **options)))
    totals = [0.0, 0.0]
    for event in events_of(answer):
        for choice, entries in enumerate(map(json.loads, event["logprobs"])):
            totals[choice] += sum(one["logprob"] for entry in entries for one in entry.values())
        assert event["cumulative_logprob"] == pytest.approx(totals)
    assert all(totals)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (GENERATE, b"{", 400, "not JSON"),
        (GENERATE, {}, 400, "text_input"),
        (GENERATE, {"text_input": 7}, 400, "text_input"),
        (STREAM, {"text_input": ""}, 400, "no tokens"),
        (GENERATE, text("hi", parameters=[1]), 400, "parameters"),
        (GENERATE, text("hi", sampling_parameters="{"), 400, "sampling_parameters"),
        (GENERATE, text("hi", temperature="hot"), 400, "temperature"),
        (GENERATE, text("hi", image="x"), 400, "image"),
        (GENERATE, text("hi", bad_words=["x"]), 400, "bad_words"),
        (STREAM, text("hi", max_tokens=400), 400, "256"),
        (STREAM, text("hi", exclude_input_in_output=False), 400, "exclude_input_in_output"),
        ("/v2/models/m/versions/9/generate", text("hi"), 404, "Specific(m, 9)"),
        ("/v2/models/m/versions/99999999999999999999/generate", text("hi"), 404, "nothing at"),
        ("/v2/models/m/versions/9999999999999999999/generate", text("hi"), 400, "version"),
        ("/v2/models/nope/generate_stream", text("hi"), 404, "nope"),
        ("/v2/models/m/generated", text("hi"), 404, "nothing at"),
        ("/v2/nothing", {}, 404, "nothing at"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, path: str, body: object, status: int, words: str
) -> None:
    wrong, right = ask_text(tmp_path, post(path, body=body), post(GENERATE, body=text("hi")))
    assert wrong.status == status
    assert words in wrong.error
    assert right.status == 200


@pytest.mark.parametrize(
    "path", ["/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/m/ready"]
)
def test_head_is_answered_as_get_without_the_body(tmp_path: Path, path: str) -> None:
    asked, head = ask_text(tmp_path, get(path), Request("HEAD", path))
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(asked.body))
    assert head.headers["content-type"] == "application/json"


def test_a_refused_head_has_no_body_either(tmp_path: Path) -> None:
    (answer,) = ask_text(tmp_path, Request("HEAD", GENERATE))
    assert (answer.status, answer.headers["allow"], answer.body) == (405, "POST", b"")


def test_another_method_or_encoding_is_refused(tmp_path: Path) -> None:
    request = post(GENERATE, body=b"x", headers={"content-encoding": "gzip"})
    answers = ask_text(tmp_path, get(GENERATE), post("/v2", body={}), request)
    assert [answer.status for answer in answers] == [405, 405, 400]
    assert [answer.headers.get("allow") for answer in answers] == ["POST", "GET, HEAD", None]


def test_the_server_and_its_models_are_described(tmp_path: Path) -> None:
    paths = ("/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models/m/ready")
    server, same, live, ready, model = ask_text(tmp_path, *map(get, paths))
    assert server.json == same.json
    assert (server.json["name"], "generate" in server.json["extensions"]) == ("aspira", True)
    assert (live.status, live.json) == (200, {"live": True})
    assert (ready.status, ready.json) == (200, {"ready": True})
    assert (model.status, model.json) == (200, {"name": "m", "ready": True})


@pytest.mark.parametrize("path", ["/v2/models/nope/ready", "/v2/models/m/versions/7/ready"])
def test_what_is_not_loaded_is_not_ready(tmp_path: Path, path: str) -> None:
    (answer,) = ask_text(tmp_path, get(path))
    assert (answer.status, answer.json["ready"]) == (400, False)
    assert "not found" in answer.json["error"]


def test_a_server_that_cannot_serve_is_not_ready(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1, load_error="no")
    ready, live = ask(single_model(tmp_path / "m"), get("/v2/health/ready"), get("/v2/health/live"))
    assert (ready.status, ready.json) == (400, {"ready": False})
    assert live.status == 200


def test_a_language_model_is_described(tmp_path: Path) -> None:
    metadata, config = ask_text(tmp_path, get("/v2/models/m"), get("/v2/models/m/config"))
    assert metadata.json["versions"] == ["1"]
    assert metadata.json["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": [1]}
    assert metadata.json["outputs"][0] == {
        "name": "text_output",
        "datatype": "BYTES",
        "shape": [-1],
    }
    assert config.json["model_transaction_policy"] == {"decoupled": True}
    assert [one["optional"] for one in config.json["input"]][:2] == [False, True]


def test_a_predictor_is_described(tmp_path: Path) -> None:
    metadata, config = ask_tensors(tmp_path, get("/v2/models/m"), get("/v2/models/m/config"))
    assert metadata.json["versions"] == ["2"]
    assert metadata.json["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert config.json["output"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}]
    assert config.json["model_transaction_policy"] == {"decoupled": False}


def tensor(name: str, data: Any, *, datatype: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data)], "datatype": datatype, "data": data, **fields}


def test_tensors_are_inferred_in_json(tmp_path: Path) -> None:
    flat = {"id": "3", "inputs": [tensor("x", [1.0, 2.0, 5.0], datatype="FP32")]}
    nested = {"inputs": [tensor("x", [[1], [2]], datatype="FP32", shape=[2, 1])]}
    one, other = ask_tensors(tmp_path, post(INFER, body=flat), post(INFER, body=nested))
    assert one.json == {
        "model_name": "m",
        "model_version": "2",
        "id": "3",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [3], "data": [2.5, 3.0, 4.5]}],
    }
    assert other.json["outputs"][0]["shape"] == [2, 1]


def test_what_is_no_finite_number_has_tritons_words(tmp_path: Path) -> None:
    values = [1.0, float("nan"), float("inf"), float("-inf")]
    body = json.dumps({"inputs": [tensor("x", values, datatype="FP32")]}).encode()
    assert b"[1.0, NaN, Infinity, -Infinity]" in body
    (answer,) = ask_tensors(tmp_path, post(INFER, body=body))
    assert b'"data":[2.5,NaN,Infinity,-Infinity]' in answer.body


@pytest.mark.parametrize(
    "body",
    [b'{"inputs": [NaN', b'{"id": "NaN", ', b'["Infinity"' * 100_000, b'{"a": NaN}\xff'],
    ids=["cut off", "in a text", "deep", "no UTF-8"],
)
def test_these_words_make_no_json_of_other_things(tmp_path: Path, body: bytes) -> None:
    (answer,) = ask_tensors(tmp_path, post(INFER, body=body))
    assert answer.status == 400
    assert answer.error.startswith("The body is not JSON: ")


@pytest.mark.parametrize(
    "wanted",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]},
    ],
)
def test_tensors_are_inferred_in_raw_bytes(tmp_path: Path, wanted: dict[str, Any]) -> None:
    raw = struct.pack("<2f", 1.0, 2.0)
    described = {
        "name": "x",
        "shape": [2],
        "datatype": "FP32",
        "parameters": {"binary_data_size": len(raw)},
    }
    header = json.dumps({"inputs": [described], **wanted}).encode()
    headers = {"inference-header-content-length": str(len(header))}
    (answer,) = ask_tensors(tmp_path, post(INFER, body=header + raw, headers=headers))
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 8}
    assert struct.unpack("<2f", answer.body[length:]) == (2.5, 3.0)


SHARED = {"shared_memory_region": "r", "shared_memory_byte_size": 4}


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        ({"inputs": [7]}, {}, 400, "name"),
        ({"inputs": [tensor("x", [1], datatype="FP99")]}, {}, 400, "FP99"),
        ({"inputs": [tensor("x", ["a"], datatype="FP32")]}, {}, 400, "FP32"),
        ({"inputs": [tensor("x", [300], datatype="UINT8")]}, {}, 400, "range"),
        ({"inputs": [tensor("x", [1e300], datatype="FP32")]}, {}, 400, "range"),
        ({"inputs": [tensor("x", [], datatype="FP32", shape=[0, *[2**30] * 3])]}, {}, 400, "shape"),
        ({"inputs": [tensor("x", [1], datatype="FP32", parameters=SHARED)]}, {}, 400, "memory"),
        ({"inputs": [], "outputs": [{"name": "y", "parameters": SHARED}]}, {}, 400, "memory"),
        ({"inputs": [tensor("x", [1], datatype="FP32", shape=[2])]}, {}, 400, "shape"),
        ({"inputs": [tensor("x", [1], datatype="FP32", shape=[-1])]}, {}, 400, "shape"),
        ({"inputs": [tensor("x", [[1], [2, 3]], datatype="FP32", shape=[3])]}, {}, 400, "even"),
        ({"inputs": [tensor("x", [1], datatype="FP32")] * 2}, {}, 400, "twice"),
        ({"inputs": [tensor("z", [1], datatype="FP32")]}, {}, 400, "x"),
        (
            {"inputs": [tensor("x", [1], datatype="FP32")], "outputs": [{"name": "q"}]},
            {},
            400,
            "q",
        ),
        (
            {"inputs": [tensor("x", [1], datatype="FP32", parameters={"binary_data_size": 4})]},
            {},
            400,
            "binary_data_size",
        ),
        ({"inputs": []}, {"inference-header-content-length": "9999"}, 400, "Header"),
        ({"inputs": []}, {"inference-header-content-length": "-1"}, 400, "Header"),
        ({"inputs": [], "parameters": {"signature_name": "q"}}, {}, 400, '"q"'),
    ],
)
def test_tensors_that_are_wrong_are_refused(
    tmp_path: Path, body: Any, headers: dict[str, str], status: int, words: str
) -> None:
    (answer,) = ask_tensors(tmp_path, post(INFER, body=body, headers=headers))
    assert answer.status == status
    assert words in answer.error


def test_a_language_model_is_asked_by_tensors(tmp_path: Path) -> None:
    inputs = [
        tensor("text_input", ["hi"], datatype="BYTES"),
        tensor("sampling_parameters", ['{"temperature": 0}'], datatype="BYTES"),
        tensor("exclude_input_in_output", [True], datatype="BOOL"),
    ]
    body = {
        "inputs": inputs,
        "parameters": {"max_tokens": 9},
        "outputs": [{"name": "text_output"}, {"name": "finish_reason"}],
    }
    (answer,) = ask_text(tmp_path, post(INFER, body=body))
    assert [(one["name"], one["data"]) for one in answer.json["outputs"]] == [
        ("text_output", [SAID]),
        ("finish_reason", [REASON]),
    ]


def test_a_predictor_generates_nothing(tmp_path: Path) -> None:
    (answer,) = ask_tensors(tmp_path, post(GENERATE, body=text("hi")))
    assert (answer.status, "not a language model" in answer.error) == (400, True)


@pytest.mark.parametrize("path", [GENERATE, STREAM])
def test_work_ends_when_the_client_leaves(tmp_path: Path, path: str) -> None:
    request = post(path, body=text("hi", max_tokens=200, ignore_eos=True))
    asyncio.run(check_that_leaving_ends_the_work(tmp_path / "m", request=request))


def test_the_head_leaves_when_the_request_is_queued(tmp_path: Path) -> None:
    async def run() -> None:
        held = HeldDecoder()
        async with serving_language_model(tmp_path / "m", source=held.source) as server:
            held.hold()
            client, task = begin_request(server, request=post(STREAM, body=text("hi")))
            await until(lambda: len(client.sent) == 2)
            head, flush = client.sent
            assert head["status"] == 200
            assert flush == {"type": "http.response.body", "body": b"", "more_body": True}
            held.go()
            await task

    asyncio.run(run())


def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    async def run() -> None:
        held = HeldDecoder()
        settings = with_options(tmp_path / "m", keep_alive_s=0.01)
        async with serving_language_model(
            tmp_path / "m", source=held.source, settings=settings
        ) as server:
            held.hold()
            client, task = begin_request(server, request=post(STREAM, body=text("hi")))
            await until(lambda: any(e.get("body", b"")[:1] == b":" for e in client.sent))
            held.go()
            await task
            events = events_of(read_answer(client.sent))
            assert "".join(event["text_output"] for event in events) == SAID

    asyncio.run(run())


def test_an_error_amid_a_stream_is_its_last_event(tmp_path: Path) -> None:
    async def run() -> None:
        held = HeldDecoder()
        settings = with_options(tmp_path / "m", keep_alive_s=0.01)
        async with serving_language_model(
            tmp_path / "m", source=held.source, settings=settings
        ) as server:
            held.hold()
            client, task = begin_request(server, request=post(STREAM, body=text("hi")))
            await until(lambda: len(client.sent) > 1)
            draining = asyncio.ensure_future(server.drain(grace_s=1.0))
            await task
            *_, last = events_of(read_answer(client.sent))
            assert "server is being shut down" in last["error"]
            held.go()
            assert await draining

    asyncio.run(run())


def test_requests_are_told_of_as_events_and_questions_are_not(tmp_path: Path) -> None:
    async def run() -> list[RequestEnded]:
        told: list[RequestEnded] = []
        async with serving_language_model(tmp_path / "m") as server:
            server._recording._events.subscribe_requests(told.append)
            for request in (
                get("/v2"),
                get("/v2/models/m"),
                post(GENERATE, body=text("hi")),
                post(STREAM, body=text("hi")),
                post(GENERATE, body={}),
            ):
                await exchange(server.application, request=request)
        return told

    assert [(e.model_name, e.version, e.api, e.code.name) for e in asyncio.run(run())] == [
        ("m", 1, "generate", "OK"),
        ("m", 1, "generate_stream", "OK"),
        ("m", None, "generate", "INVALID_ARGUMENT"),
    ]


def test_without_extensions_there_is_no_such_path(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)
    settings: Settings = single_model(tmp_path / "m")
    settings = replace(settings, rest=replace(settings.rest, is_extended=False))

    async def run() -> Answer:
        async with running(settings) as server:
            return await exchange(server.application, request=get("/v2/health/live"))

    assert asyncio.run(run()).status == 404
