"""Generations through the whole server, with a decoder whose answers can be worked out."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from asgi_exchange import Answer, ScriptedClient, exchange, get, post, read_answer
from aspira.app import Server
from aspira.contracts.events import RequestEnded
from aspira.llm.runner import StepBatch
from language_toys import (
    HeldDecoder,
    ToySource,
    begin_request,
    check_that_leaving_ends_the_work,
    events_of,
    expected,
    serving_language_model,
    until,
    with_options,
    write_language_model,
)
from serving_toys import single_model

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
GREEDY = {"model": "m", "temperature": 0}


def chat_body(text: str, **fields: Any) -> dict[str, Any]:
    return {**GREEDY, "messages": [{"role": "user", "content": text}], "max_tokens": 9, **fields}


def completion_body(prompt: object, **fields: Any) -> dict[str, Any]:
    return {**GREEDY, "prompt": prompt, "max_tokens": 9, **fields}


def ask(tmp_path: Path, path: str, body: object, *, source: ToySource | None = None) -> Answer:
    async def run() -> Answer:
        async with serving_language_model(tmp_path / "m", source=source) as server:
            return await exchange(server.application, request=post(path, body=body))

    return asyncio.run(run())


async def replace_version(server: Server, *, base_path: Path) -> None:
    """Until version 2 answers; version 1 stays for its streams."""
    write_language_model(base_path, version=2)
    await server._models.reload(server._models.configs)
    await until(lambda: [s.version for s, _ in server._manager.ready()] == [2])


def text_of(events: list[Any], index: int = 0) -> str:
    """Of chat chunks or completion chunks."""
    choices = [c for event in events for c in event["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)


@pytest.mark.parametrize("text", ["hi", "the end of", "0123456789"])
def test_a_chat_is_answered_whole(tmp_path: Path, text: str) -> None:
    answer = ask(tmp_path, CHAT, chat_body(text))
    said, reason, num_tokens = expected(text, max_tokens=9)
    body = answer.json
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert body["object"] == "chat.completion"
    assert body["model"] == "m"
    assert body["system_fingerprint"] == "m@1"
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": said, "refusal": None},
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": None,
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": len(text),
        "completion_tokens": num_tokens,
        "total_tokens": len(text) + num_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@pytest.mark.parametrize("has_usage", [True, False])
def test_a_chat_is_streamed_as_clients_expect(tmp_path: Path, has_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if has_usage else {}
    answer = ask(tmp_path, CHAT, chat_body("hi", stream=True, **options))
    events = events_of(answer)
    said, reason, _ = expected("hi", max_tokens=9)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert len({(event["id"], event["created"], event["object"]) for event in events}) == 1
    if has_usage:
        last = events.pop()
        assert (last["choices"], last["usage"]["prompt_tokens"]) == ([], 2)
        assert {event["usage"] for event in events} == {None}
    else:
        assert not any("usage" in event for event in events)
    choices = [event["choices"][0] for event in events]
    assert all({"index", "delta", "logprobs", "finish_reason"} <= c.keys() for c in choices)
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert (choices[-1]["delta"], choices[-1]["finish_reason"]) == ({}, reason)
    assert {c["finish_reason"] for c in choices[:-1]} == {None}
    assert text_of(events) == said


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["ab"]),
        (["ab", "cde"], ["ab", "cde"]),
        ([97, 98], ["ab"]),
        ([[97, 98], [99]], ["ab", "c"]),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
def test_prompts_are_text_or_tokens_and_numbered_with_their_choices(
    tmp_path: Path, prompt: object, texts: list[str], is_streamed: bool
) -> None:
    body = completion_body(prompt, n=2, stream=is_streamed, echo=True)
    answer = ask(tmp_path, COMPLETIONS, body)
    said = [text + expected(text, max_tokens=9)[0] for text in texts for _ in range(2)]
    if is_streamed:
        events = events_of(answer)
        assert [text_of(events, index) for index in range(len(said))] == said
    else:
        assert [choice["text"] for choice in answer.json["choices"]] == said
        assert [choice["index"] for choice in answer.json["choices"]] == list(range(len(said)))
        assert answer.json["usage"]["prompt_tokens"] == sum(map(len, texts))


def test_completions_have_16_tokens_unless_told(tmp_path: Path) -> None:
    body = completion_body("a", ignore_eos=True)
    del body["max_tokens"]
    assert ask(tmp_path, COMPLETIONS, body).json["usage"]["completion_tokens"] == 16


def test_a_stop_string_ends_the_text_before_it(tmp_path: Path) -> None:
    said, _, _ = expected("hi", max_tokens=9)
    stop = said[3:5]
    choice = ask(tmp_path, CHAT, chat_body("hi", stop=stop)).json["choices"][0]
    assert choice["message"]["content"] == said[: said.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_logprobs_of_a_chat_spell_its_text(tmp_path: Path, is_streamed: bool) -> None:
    body = chat_body("hi", logprobs=True, top_logprobs=2, stream=is_streamed)
    answer = ask(tmp_path, CHAT, body)
    if is_streamed:
        choices = [event["choices"][0] for event in events_of(answer)]
        content = [one for c in choices if c["logprobs"] for one in c["logprobs"]["content"]]
    else:
        content = answer.json["choices"][0]["logprobs"]["content"]
    said, _, _ = expected("hi", max_tokens=9)
    assert bytes(b for one in content for b in one["bytes"]).decode("utf-8", "replace") == said
    assert all(len(one["top_logprobs"]) == 2 for one in content)
    assert all(one["logprob"] == one["top_logprobs"][0]["logprob"] <= 0 for one in content)


def test_logprobs_of_a_completion_have_offsets(tmp_path: Path) -> None:
    choice = ask(tmp_path, COMPLETIONS, completion_body("hi", logprobs=1)).json["choices"][0]
    logprobs = choice["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) > 0
    assert logprobs["text_offset"] == list(range(len(logprobs["tokens"])))
    assert all(len(top) == 1 for top in logprobs["top_logprobs"])


@pytest.mark.parametrize("num_logprobs", [0, 2])
def test_logprobs_of_a_completion_have_the_drawn_token_however_unlikely(
    tmp_path: Path, num_logprobs: int
) -> None:
    body = completion_body("hi", logprobs=num_logprobs, guided_regex="~{9}")
    logprobs = ask(tmp_path, COMPLETIONS, body).json["choices"][0]["logprobs"]
    assert set(logprobs["tokens"]) == {"~"}
    for top, logprob in zip(logprobs["top_logprobs"], logprobs["token_logprobs"], strict=True):
        assert top["~"] == logprob == min(top.values())
        assert (len(top) == 1) == (num_logprobs == 0)


def test_a_schema_holds_the_output(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = chat_body("hi", response_format=wanted, max_tokens=100)
    choice = ask(tmp_path, CHAT, body).json["choices"][0]
    assert json.loads(choice["message"]["content"]) == {"a": 7}
    assert choice["finish_reason"] == "stop"


def test_text_becomes_tokens_and_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving_language_model(tmp_path / "m") as server:
            for body, tokens in (
                ({"model": "m", "prompt": "añ"}, list("añ".encode())),
                ({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, [104, 105]),
            ):
                answer = await exchange(server.application, request=post("/tokenize", body=body))
                assert answer.json == {"count": len(tokens), "max_model_len": 256, "tokens": tokens}
            request = post("/detokenize", body={"model": "m", "tokens": [104, 105, 9999]})
            answer = await exchange(server.application, request=request)
            assert answer.json == {"prompt": "hi"}

    asyncio.run(run())


@pytest.mark.parametrize("name", ["m", "m/versions/1"])
def test_a_version_can_be_named(tmp_path: Path, name: str) -> None:
    answer = ask(tmp_path, CHAT, chat_body("hi", model=name))
    assert (answer.status, answer.json["model"]) == (200, name)


def begin(server: Server, body: object, *, path: str = CHAT) -> tuple[ScriptedClient, Any]:
    return begin_request(server, request=post(path, body=body))


@pytest.mark.parametrize("is_streamed", [True, False])
def test_work_ends_when_the_client_leaves(tmp_path: Path, is_streamed: bool) -> None:
    body = chat_body("hi", stream=is_streamed, max_tokens=200, ignore_eos=True)
    request = post(CHAT, body=body)
    asyncio.run(check_that_leaving_ends_the_work(tmp_path / "m", request=request))


def test_silence_is_broken_by_comments(tmp_path: Path) -> None:
    async def run() -> None:
        held = HeldDecoder()
        settings = with_options(tmp_path / "m", keep_alive_s=0.01)
        async with serving_language_model(
            tmp_path / "m", source=held.source, settings=settings
        ) as server:
            held.hold()
            client, task = begin(server, chat_body("hi", stream=True))
            await until(lambda: any(e.get("body", b"")[:1] == b":" for e in client.sent))
            held.go()
            await task
            events = events_of(read_answer(client.sent))
            assert text_of(events) == expected("hi", max_tokens=9)[0]

    asyncio.run(run())


def in_band_error(client: ScriptedClient) -> Any:
    """The error that a stream ended with: its last event, after which it is closed."""
    answer = read_answer(client.sent)
    assert answer.status == 200
    *_, last, rest = answer.body.decode().split("\n\n")
    assert rest == ""
    return json.loads(last.removeprefix("data: "))["error"]


def test_a_version_that_is_replaced_ends_its_streams_in_time_and_in_words(tmp_path: Path) -> None:
    async def run() -> None:
        held, base_path = HeldDecoder(version=1), tmp_path / "m"
        settings = with_options(base_path, stream_drain_s=0.0)
        async with serving_language_model(
            base_path, source=held.source, settings=settings
        ) as server:
            held.hold()
            client, task = begin(server, chat_body("hi", stream=True))
            await held.reached.wait()
            write_language_model(base_path, version=2)
            await server._models.reload(server._models.configs)
            await task
            error = in_band_error(client)
            assert (error["code"], error["type"]) == ("unavailable", "server_error")
            answer = await exchange(server.application, request=post(CHAT, body=chat_body("hi")))
            assert answer.json["system_fingerprint"] == "m@2"
            held.go()

    asyncio.run(run())


def test_a_version_that_is_replaced_goes_on_for_its_streams(tmp_path: Path) -> None:
    async def run() -> None:
        held, base_path = HeldDecoder(version=1), tmp_path / "m"
        async with serving_language_model(base_path, source=held.source) as server:
            held.hold()
            client, task = begin(server, chat_body("hi", stream=True))
            await held.reached.wait()
            await replace_version(server, base_path=base_path)
            held.go()
            await task
            events = events_of(read_answer(client.sent))
            assert {event["system_fingerprint"] for event in events} == {"m@1"}
            assert text_of(events) == expected("hi", max_tokens=9)[0]

    asyncio.run(run())


def test_a_full_queue_says_when_to_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        held = HeldDecoder(max_queued_requests=1)
        async with serving_language_model(tmp_path / "m", source=held.source) as server:
            held.hold()
            _, running = begin(server, chat_body("hi"))
            await held.reached.wait()
            waiting = [begin(server, chat_body("hi", stream=True)) for _ in range(2)]
            tasks = {task: client for client, task in waiting}
            (refused,), _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            client = tasks.pop(refused)
            answer = read_answer(client.sent)
            assert answer.status == 429
            assert answer.json["error"]["type"] == "rate_limit_error"
            assert int(answer.headers["retry-after"]) >= 1
            held.go()
            await asyncio.gather(running, *tasks)

    asyncio.run(run())


def test_a_server_that_shuts_down_tells_its_streams(tmp_path: Path) -> None:
    async def run() -> None:
        held = HeldDecoder()
        async with serving_language_model(tmp_path / "m", source=held.source) as server:
            held.hold()
            client, task = begin(server, chat_body("hi", stream=True))
            await until(lambda: len(client.sent) > 1)
            draining = asyncio.ensure_future(server.drain(grace_s=1.0))
            await task
            assert "server is being shut down" in in_band_error(client)["message"]
            held.go()
            assert await draining

    asyncio.run(run())


def test_a_server_that_shuts_down_tells_the_streams_of_a_version_that_leaves_too(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        held, base_path = HeldDecoder(version=1), tmp_path / "m"
        async with serving_language_model(base_path, source=held.source) as server:
            held.hold()
            client, task = begin(server, chat_body("hi", stream=True))
            await held.reached.wait()
            await replace_version(server, base_path=base_path)
            server._generation.end_streams_after(0.0)
            await task
            assert "server is being shut down" in in_band_error(client)["message"]
            held.go()

    asyncio.run(run())


def test_a_dead_engine_makes_the_model_unready_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        broken = threading.Event()

        def before_step(_: StepBatch) -> None:
            if broken.is_set() and "m-1" in threading.current_thread().name:
                raise RuntimeError("no more")

        source = ToySource(before_step=before_step)
        async with serving_language_model(tmp_path / "m", source=source) as server:
            assert server._models.unavailable() == {}
            broken.set()
            answer = await exchange(server.application, request=post(CHAT, body=chat_body("hi")))
            assert answer.status == 503
            await until(lambda: server._models.lost() != {})
            assert "engine has failed" in server._models.unavailable()["m"]
            assert not server._models.can_serve()
            unhealthy = await exchange(server.application, request=get("/healthz"))
            assert unhealthy.status == 503
            assert "engine has failed" in unhealthy.json["lost"]["{name: m version: 1}"]
            write_language_model(tmp_path / "m", version=2)
            await server._models.reload(server._models.configs)
            await until(lambda: server._models.lost() == {})
            assert (await exchange(server.application, request=get("/healthz"))).status == 200

    asyncio.run(run())


def test_requests_are_told_of_as_events(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving_language_model(tmp_path / "m") as server:
            told: list[RequestEnded] = []
            server._recording._events.subscribe_requests(told.append)
            for body in (chat_body("hi"), chat_body("hi", stream=True), chat_body("hi", n=0)):
                await exchange(server.application, request=post(CHAT, body=body))
            assert [(e.model_name, e.version, e.api, e.entrypoint) for e in told] == [
                ("m", 1, "chat_completions", "openai")
            ] * 3
            assert [event.code.name for event in told] == ["OK", "OK", "INVALID_ARGUMENT"]

    asyncio.run(run())


def test_a_predictor_is_no_language_model_nor_the_other_way_round(tmp_path: Path) -> None:
    async def run() -> None:
        (tmp_path / "p" / "1").mkdir(parents=True)
        async with serving_language_model(tmp_path / "m") as server:
            request = post("/v1/models/m:predict", body={"instances": [1]})
            answer = await exchange(server.application, request=request)
            assert answer.status == 400
            assert "/v1/chat/completions" in answer.error

    asyncio.run(run())


def test_a_servable_of_another_kind_is_refused(tmp_path: Path) -> None:
    from serving_toys import running, write_version

    async def run() -> None:
        write_version(tmp_path / "m", version=1)
        async with running(single_model(tmp_path / "m")) as server:
            answer = await exchange(server.application, request=post(CHAT, body=chat_body("hi")))
            assert answer.status == 400
            assert "not a language model" in answer.json["error"]["message"]

    asyncio.run(run())
