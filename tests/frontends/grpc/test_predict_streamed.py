"""PredictStreamed through the whole server, with models whose answers can be worked out."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import (
    PredictRequest,
    PredictResponse,
    PredictStreamedOptions,
)

from asgi_exchange import ScriptedClient, exchange, read_answer
from aspira.contracts.errors import Code
from aspira.contracts.events import RequestEnded
from grpc_exchange import CallResult, call_request, read_result
from language_toys import (
    HeldDecoder,
    begin_request,
    check_that_leaving_ends_the_work,
    expected,
    serving_language_model,
    statistics_of,
    until,
)
from serving_toys import ask, single_model, write_version

PATH = "/tensorflow.serving.PredictionService/PredictStreamed"
SAID, REASON, NUM_TOKENS = expected("hi", max_tokens=9)
SPLIT, END_SPLIT, CANCEL = (
    PredictStreamedOptions.SPLIT,
    PredictStreamedOptions.END_SPLIT,
    PredictStreamedOptions.CANCEL,
)


def request_of(*, state: int = 0, wanted: Sequence[str] = (), **inputs: Any) -> PredictRequest:
    request = PredictRequest(output_filter=wanted)
    request.model_spec.name = "m"
    request.predict_streamed_options.request_state = state
    for name, value in inputs.items():
        dtype = tf.int32 if isinstance(value, int) and not isinstance(value, bool) else None
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value, dtype=dtype))
    return request


def text(prompt: str, **inputs: Any) -> PredictRequest:
    return request_of(text=prompt, **{"temperature": 0.0, "max_tokens": 9, **inputs})


def stream(tmp_path: Path, *requests: PredictRequest) -> CallResult:
    async def run() -> CallResult:
        async with serving_language_model(tmp_path / "m") as server:
            answer = await exchange(server.application, request=call_request(PATH, *requests))
            return read_result(answer, answer_class=PredictResponse)

    return asyncio.run(run())


def outputs_of(result: CallResult, name: str) -> list[Any]:
    """The values of an output over all answers that have it."""
    found: list[Any] = []
    for message in result.messages:
        if name in message.outputs:
            found += tf.make_ndarray(message.outputs[name]).reshape(-1).tolist()
    return found


def said(result: CallResult) -> str:
    assert result.code is Code.OK, result.text
    return b"".join(outputs_of(result, "text")).decode()


@pytest.mark.parametrize("state", [0, END_SPLIT])
def test_a_language_model_streams_its_text(tmp_path: Path, state: int) -> None:
    result = stream(tmp_path, text("hi", state=state))
    assert said(result) == SAID
    reasons = [reason.decode() for reason in outputs_of(result, "finish_reason")]
    assert reasons == [""] * (len(reasons) - 1) + [REASON]
    assert len(outputs_of(result, "token_ids")) == NUM_TOKENS
    counts = [outputs_of(result, f"{kind}_tokens") for kind in ("prompt", "completion", "cached")]
    assert counts == [[2], [NUM_TOKENS], [0]]
    specs = {(m.model_spec.name, m.model_spec.version.value) for m in result.messages}
    assert specs == {("m", 1)}
    shapes = {tf.make_ndarray(message.outputs["text"]).shape for message in result.messages}
    assert shapes == {(1,)}


@pytest.mark.parametrize(
    "prompt",
    [
        {"input_ids": list(b"hi")},
        {"input_ids": [list(b"hi")]},
        {"text": ["hi"]},
        {"messages": json.dumps([{"role": "user", "content": "hi"}])},
    ],
)
def test_a_prompt_is_text_or_tokens_or_messages(tmp_path: Path, prompt: dict[str, Any]) -> None:
    assert said(stream(tmp_path, request_of(temperature=0.0, max_tokens=9, **prompt))) == SAID


def test_a_single_response_has_it_all(tmp_path: Path) -> None:
    request = text("hi", logprobs=0)
    request.predict_streamed_options.return_single_response = True
    result = stream(tmp_path, request)
    assert len(result.messages) == 1
    assert said(result) == SAID
    assert len(outputs_of(result, "logprobs")) == NUM_TOKENS
    assert outputs_of(result, "finish_reason") == [REASON.encode()]


def test_outputs_are_chosen(tmp_path: Path) -> None:
    result = stream(tmp_path, text("hi", wanted=("token_ids", "logprobs")))
    names = [set(message.outputs) for message in result.messages]
    assert all(found == {"token_ids", "logprobs"} for found in names)
    assert len(outputs_of(result, "logprobs")) == NUM_TOKENS


@pytest.mark.parametrize("stop", [SAID[3], [SAID[3], "never"]])
def test_a_stop_string_is_one_or_several(tmp_path: Path, stop: Any) -> None:
    result = stream(tmp_path, text("hi", stop=stop))
    assert said(result) == SAID[: SAID.index(SAID[3])]
    assert outputs_of(result, "finish_reason")[-1] == b"stop"


def test_a_handshake_has_no_answer(tmp_path: Path) -> None:
    assert said(stream(tmp_path, request_of(), request_of(), text("hi"))) == SAID


def unknown() -> PredictRequest:
    request = request_of()
    request.model_spec.name = "nope"
    return request


@pytest.mark.parametrize(
    ("requests", "code", "words"),
    [
        ((), Code.INVALID_ARGUMENT, "without a request"),
        ((request_of(),), Code.INVALID_ARGUMENT, "without a request"),
        ((unknown(), text("hi")), Code.NOT_FOUND, "nope"),
        ((text("hi", state=SPLIT), text("hi", state=END_SPLIT)), Code.UNIMPLEMENTED, "split"),
        ((request_of(state=CANCEL),), Code.CANCELLED, "cancelled"),
        ((request_of(max_tokens=3),), Code.INVALID_ARGUMENT, "text, input_ids, messages"),
        ((text("hi", input_ids=[1]),), Code.INVALID_ARGUMENT, "text, input_ids, messages"),
        ((text(""),), Code.INVALID_ARGUMENT, "no tokens"),
        ((text("hi", max_tokens=400),), Code.INVALID_ARGUMENT, "256"),
        ((text("hi", n=2),), Code.INVALID_ARGUMENT, "n must be 1"),
        ((text("hi", temperature=[0.0, 1.0]),), Code.INVALID_ARGUMENT, "one element"),
        ((text("hi", temperature="hot"),), Code.INVALID_ARGUMENT, "temperature"),
        ((text("hi", wanted=("logits",)),), Code.INVALID_ARGUMENT, "logits"),
        ((request_of(input_ids=[[1], [2]]),), Code.INVALID_ARGUMENT, "of one text"),
        ((request_of(input_ids=[1.5]),), Code.INVALID_ARGUMENT, "input_ids"),
        ((request_of(text=b"\xff"),), Code.INVALID_ARGUMENT, "UTF-8"),
        ((request_of(messages="["),), Code.INVALID_ARGUMENT, "JSON"),
        ((request_of(messages="[]"),), Code.INVALID_ARGUMENT, "messages"),
    ],
)
def test_what_is_wrong_is_refused(
    tmp_path: Path, requests: tuple[PredictRequest, ...], code: Code, words: str
) -> None:
    result = stream(tmp_path, *requests)
    assert (result.code, result.messages) == (code, []), result.text
    assert words in result.text


def test_another_model_answers_once(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=2)
    (answer,) = ask(single_model(tmp_path / "m"), call_request(PATH, request_of(x=[1.0, 2.0])))
    result = read_result(answer, answer_class=PredictResponse)
    (message,) = result.messages
    assert (result.code, message.model_spec.version.value) == (Code.OK, 2)
    assert message.model_spec.signature_name == "serving_default"
    assert tf.make_ndarray(message.outputs["y"]).tolist() == np.array([2.5, 3.0]).tolist()


def test_a_handshake_alone_does_not_hold_up_a_shutdown(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving_language_model(tmp_path / "m") as server:
            call = replace(call_request(PATH, request_of()), is_complete=False)
            client, task = begin_request(server, request=call)
            await until(lambda: client.num_unread == 0)
            server.gate.close()
            async with asyncio.timeout(60):
                await server.gate.wait_empty()
            assert not task.done()
            client.leave()
            await task

    asyncio.run(run())


@pytest.mark.parametrize("is_complete", [True, False])
def test_work_ends_when_the_client_leaves(tmp_path: Path, is_complete: bool) -> None:
    """Also while it could send further messages."""
    request = replace(call_request(PATH, text("hi", max_tokens=200)), is_complete=is_complete)
    asyncio.run(check_that_leaving_ends_the_work(tmp_path / "m", request=request))


@pytest.mark.parametrize(
    ("further", "code"),
    [(request_of(state=CANCEL), Code.CANCELLED), (text("ho"), Code.INVALID_ARGUMENT)],
)
def test_a_further_message_ends_the_stream_at_once(
    tmp_path: Path, further: PredictRequest, code: Code
) -> None:
    async def run() -> None:
        held, is_sent = HeldDecoder(), asyncio.Event()
        async with serving_language_model(tmp_path / "m", source=held.source) as server:
            held.hold()
            first = replace(call_request(PATH, text("hi", max_tokens=200)), is_complete=False)
            rest = ScriptedClient(call_request(PATH, further))
            client = ScriptedClient(first)

            async def receive() -> Any:
                if client.num_unread:
                    return await client.receive()
                await is_sent.wait()
                return await rest.receive()

            task = asyncio.ensure_future(server.application(first.scope, receive, client.send))
            await held.reached.wait()
            is_sent.set()
            await task
            assert read_result(read_answer(client.sent), answer_class=PredictResponse).code is code
            held.go()
            await until(lambda: "cancelled" in statistics_of(server).requests_ended)
            assert statistics_of(server).kv_cache_usage == 0

    asyncio.run(run())


def test_a_stream_is_told_of_as_an_event(tmp_path: Path) -> None:
    async def run() -> list[RequestEnded]:
        told: list[RequestEnded] = []
        async with serving_language_model(tmp_path / "m") as server:
            server._recording._events.subscribe_requests(told.append)
            for request in (text("hi"), text("")):
                await exchange(server.application, request=call_request(PATH, request))
        return told

    assert [(e.version, e.api, e.entrypoint, e.code.name) for e in asyncio.run(run())] == [
        (1, "predict_streamed", "grpc", "OK"),
        (None, "predict_streamed", "grpc", "INVALID_ARGUMENT"),
    ]
