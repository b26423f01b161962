"""The Open Inference Protocol over gRPC, with the messages of Triton's own client."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2

from asgi_exchange import Answer, Request, exchange, read_answer
from aspira.contracts.errors import Code
from aspira.wire.open_inference import CONFIG_TYPES, make_open_inference_messages
from grpc_exchange import CallResult, call_request, read_result
from language_toys import (
    HeldDecoder,
    begin_request,
    expected,
    serving_language_model,
    statistics_of,
    until,
)
from serving_toys import ask, single_model, write_version

SERVICE = "/inference.GRPCInferenceService"
SAID, REASON, NUM_TOKENS = expected("hi", max_tokens=9)


def method(name: str) -> str:
    return f"{SERVICE}/{name}"


def infer_request(
    inputs: dict[str, Any], *, request_id: str = "", outputs: Iterable[str] = (), **parameters: Any
) -> Any:
    """Typed contents: strings, booleans and floats."""
    request = service_pb2.ModelInferRequest(model_name="m", id=request_id)
    for name, value in inputs.items():
        values = value if isinstance(value, list) else [value]
        entry = request.inputs.add(name=name, shape=[len(values)])
        if isinstance(values[0], bool):
            entry.datatype = "BOOL"
            entry.contents.bool_contents.extend(values)
        elif isinstance(values[0], str):
            entry.datatype = "BYTES"
            entry.contents.bytes_contents.extend(text.encode() for text in values)
        else:
            entry.datatype = "FP32"
            entry.contents.fp32_contents.extend(values)
    for name in outputs:
        request.outputs.add(name=name)
    kinds = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    for name, value in parameters.items():
        setattr(request.parameters[name], kinds[type(value)], value)
    return request


def text_request(prompt: str, *, request_id: str = "", stream: bool = True, **inputs: Any) -> Any:
    return infer_request(
        {"text_input": prompt, "stream": stream, **inputs},
        request_id=request_id,
        temperature=0.0,
        max_tokens=9,
    )


def ask_text(tmp_path: Path, *requests: Request) -> list[Answer]:
    async def run() -> list[Answer]:
        async with serving_language_model(tmp_path / "m") as server:
            return [await exchange(server.application, request=one) for one in requests]

    return asyncio.run(run())


def infer(tmp_path: Path, request: Any) -> CallResult:
    (answer,) = ask_text(tmp_path, call_request(method("ModelInfer"), request))
    return read_result(answer, answer_class=service_pb2.ModelInferResponse)


def stream(tmp_path: Path, *requests: Any) -> CallResult:
    (answer,) = ask_text(tmp_path, call_request(method("ModelStreamInfer"), *requests))
    return read_result(answer, answer_class=service_pb2.ModelStreamInferResponse)


def texts_of(response: Any, *, index: int = 0) -> list[str]:
    """The strings of a raw output."""
    raw, found = response.raw_output_contents[index], []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        found.append(raw[4:end].decode())
        raw = raw[end:]
    return found


def fields_of(descriptor: Any) -> dict[int, tuple[str, int, bool]]:
    return {f.number: (f.name, f.type, f.is_repeated) for f in descriptor.fields}


def test_messages_are_those_of_the_protocol() -> None:
    """By name, number and type; a map is an entry by another name."""
    for name, ours in make_open_inference_messages().items():
        if name == "ParameterEntry":
            name = "ModelInferRequest.ParametersEntry"
        known = {**service_pb2.DESCRIPTOR.message_types_by_name}
        theirs: Any = known.get(name) or model_config_pb2.DESCRIPTOR.message_types_by_name.get(name)
        if theirs is None:
            outer, _, inner = (name if "." in name else f"ModelMetadataResponse.{name}").partition(
                "."
            )
            outer = outer if inner in known[outer].nested_types_by_name else "ModelInferRequest"
            outer = outer if inner in known[outer].nested_types_by_name else "ModelInferResponse"
            theirs = known[outer].nested_types_by_name[inner]
        expected_fields = fields_of(theirs)
        for number, (field, kind, is_repeated) in fields_of(ours.DESCRIPTOR).items():
            wanted = expected_fields[number]
            assert (field, is_repeated) == (wanted[0], wanted[2]), name
            is_enum = wanted[1] == theirs.fields_by_number[number].TYPE_ENUM
            assert kind == wanted[1] or is_enum, (name, field)


def test_types_of_a_configuration_are_those_of_the_protocol() -> None:
    types = {("STRING" if n == "BYTES" else n): number for n, number in CONFIG_TYPES.items()}
    known = {name.removeprefix("TYPE_"): n for name, n in model_config_pb2.DataType.items()}
    assert types == {name: known[name] for name in types}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"stream": False}, "hi" + SAID),
        ({"stream": True}, "hi" + SAID),
        ({"exclude_input_in_output": True}, SAID),
        (
            {"sampling_parameters": json.dumps({"max_tokens": "2"})},
            "hi" + expected("hi", max_tokens=2)[0],
        ),
    ],
)
def test_a_text_is_generated_whole(tmp_path: Path, inputs: dict[str, Any], said: str) -> None:
    result = infer(tmp_path, text_request("hi", request_id="5", **inputs))
    (response,) = result.messages
    assert (response.model_name, response.model_version, response.id) == ("m", "1", "5")
    assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [
        ("text_output", "BYTES", [1])
    ]
    assert texts_of(response) == [said]


def test_a_text_is_streamed(tmp_path: Path) -> None:
    request = text_request("hi", request_id="5", return_finish_reason=True)
    result = stream(tmp_path, request)
    assert result.code is Code.OK
    responses = [message.infer_response for message in result.messages]
    assert "".join(texts_of(one)[0] for one in responses) == SAID
    assert [texts_of(one, index=1) for one in responses[:-1]] == [["None"]] * (len(responses) - 1)
    assert texts_of(responses[-1], index=1) == [REASON]
    assert {one.id for one in responses} == {"5"}
    assert not any(one.parameters for one in responses)


def test_a_stream_takes_many_requests_and_tells_their_errors_by_their_ids(tmp_path: Path) -> None:
    wrong = infer_request({"stream": True}, request_id="wrong")
    unknown = text_request("hi", request_id="unknown")
    unknown.model_name = "nope"
    requests = [text_request(text, request_id=text) for text in ("hi", "the end of", "abc")]
    result = stream(tmp_path, requests[0], wrong, unknown, *requests[1:])
    assert result.code is Code.OK
    errors = {m.infer_response.id: m.error_message for m in result.messages if m.error_message}
    assert errors.keys() == {"wrong", "unknown"}
    assert "text_input" in errors["wrong"]
    assert "nope" in errors["unknown"]
    for text in ("hi", "the end of", "abc"):
        answers = [
            m.infer_response
            for m in result.messages
            if m.infer_response.id == text and not m.error_message
        ]
        assert "".join(texts_of(one)[0] for one in answers) == expected(text, max_tokens=9)[0]


def test_a_last_empty_response_comes_if_it_is_wanted(tmp_path: Path) -> None:
    request = text_request("hi", request_id="5")
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    responses = [message.infer_response for message in stream(tmp_path, request).messages]
    is_last = [one.parameters["triton_final_response"].bool_param for one in responses]
    assert is_last == [False] * (len(responses) - 1) + [True]
    assert (responses[-1].id, len(responses[-1].outputs)) == ("5", 0)


def test_a_stream_of_no_requests_just_ends(tmp_path: Path) -> None:
    assert stream(tmp_path) == CallResult([], Code.OK, "")


def test_a_message_that_is_none_ends_the_stream(tmp_path: Path) -> None:
    request = call_request(method("ModelStreamInfer"), text_request("hi"))
    broken = Request(
        request.method, request.path, headers=request.headers, chunks=(b"\0\0\0\0\2\xff\xff",)
    )
    (answer,) = ask_text(tmp_path, broken)
    result = read_result(answer, answer_class=service_pb2.ModelStreamInferResponse)
    assert (result.code, "Failed to parse" in result.text) == (Code.INTERNAL, True)


def test_raw_and_typed_tensors_are_predicted_alike(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=2)
    typed = infer_request({"x": [1.0, 2.0]}, request_id="a")
    raw = service_pb2.ModelInferRequest(model_name="m", model_version="2", id="a")
    raw.inputs.add(name="x", datatype="FP32", shape=[2])
    raw.raw_input_contents.append(np.array([1.0, 2.0], np.float32).tobytes())
    requests = [call_request(method("ModelInfer"), one) for one in (typed, raw)]
    one, other = (
        read_result(answer, answer_class=service_pb2.ModelInferResponse)
        for answer in ask(single_model(tmp_path / "m"), *requests)
    )
    assert one == other
    (response,) = one.messages
    assert np.frombuffer(response.raw_output_contents[0], np.float32).tolist() == [2.5, 3.0]


def test_a_predictor_streams_one_answer(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=2)
    request = call_request(
        method("ModelStreamInfer"), infer_request({"x": [4.0]}), infer_request({"x": [4.0]})
    )
    (answer,) = ask(single_model(tmp_path / "m"), request)
    result = read_result(answer, answer_class=service_pb2.ModelStreamInferResponse)
    assert len(result.messages) == 2


def _mixed() -> Any:
    request = infer_request({"x": [1.0]})
    request.raw_input_contents.append(b"\0\0\0\0")
    return request


def _too_few() -> Any:
    request = _mixed()
    request.inputs[0].ClearField("contents")
    request.inputs.add(name="z", datatype="FP32", shape=[1])
    return request


def _nameless() -> Any:
    request = infer_request({"x": [1.0]})
    request.model_name = ""
    return request


def _shared(output: str) -> Any:
    request = infer_request({"x": [1.0]}, outputs=[output])
    request.outputs[0].parameters["shared_memory_region"].string_param = "r"
    return request


def _versioned(version: str) -> Any:
    request = infer_request({"x": [1.0]})
    request.model_version = version
    return request


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (_mixed(), Code.INVALID_ARGUMENT, "beside raw"),
        (_too_few(), Code.INVALID_ARGUMENT, "all inputs"),
        (_shared("y"), Code.INVALID_ARGUMENT, "shared memory"),
        (_shared("n" * 999), Code.INVALID_ARGUMENT, "nnn... is in shared memory"),
        (_nameless(), Code.INVALID_ARGUMENT, "no model"),
        (_versioned("one"), Code.INVALID_ARGUMENT, "version"),
        (_versioned("7"), Code.NOT_FOUND, "Specific(m, 7)"),
        (infer_request({"x": ["a"]}, outputs=["q"]), Code.INVALID_ARGUMENT, "q"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, request_: Any, code: Code, words: str) -> None:
    write_version(tmp_path / "m", version=2)
    (answer,) = ask(single_model(tmp_path / "m"), call_request(method("ModelInfer"), request_))
    result = read_result(answer, answer_class=service_pb2.ModelInferResponse)
    assert (result.code, words in result.text) == (code, True), result.text


def question(tmp_path: Path, method_name: str, **fields: Any) -> CallResult:
    request = getattr(service_pb2, f"{method_name}Request")(**fields)
    (answer,) = ask_text(tmp_path, call_request(method(method_name), request))
    return read_result(answer, answer_class=getattr(service_pb2, f"{method_name}Response"))


def test_the_server_and_its_models_are_described(tmp_path: Path) -> None:
    (live,) = question(tmp_path, "ServerLive").messages
    (ready,) = question(tmp_path, "ServerReady").messages
    (server,) = question(tmp_path, "ServerMetadata").messages
    assert (live.live, ready.ready, server.name) == (True, True, "aspira")
    (model,) = question(tmp_path, "ModelReady", name="m", version="1").messages
    (unknown,) = question(tmp_path, "ModelReady", name="m", version="7").messages
    assert (model.ready, unknown.ready) == (True, False)
    (metadata,) = question(tmp_path, "ModelMetadata", name="m").messages
    assert list(metadata.versions) == ["1"]
    assert (metadata.inputs[0].name, metadata.inputs[0].datatype) == ("text_input", "BYTES")
    (config,) = question(tmp_path, "ModelConfig", name="m").messages
    assert config.config.model_transaction_policy.decoupled
    assert config.config.input[0].data_type == model_config_pb2.DataType.TYPE_STRING
    assert question(tmp_path, "ModelMetadata", name="nope").code is Code.NOT_FOUND


def test_work_ends_when_the_client_leaves(tmp_path: Path) -> None:
    """Also while it could send further requests."""

    async def run(is_complete: bool) -> None:
        held = HeldDecoder()
        async with serving_language_model(tmp_path / "m", source=held.source) as server:
            held.hold()
            whole = call_request(
                method("ModelStreamInfer"),
                *[infer_request({"text_input": "hi", "stream": True}, max_tokens=200)] * 3,
            )
            request = Request(
                whole.method,
                whole.path,
                headers=whole.headers,
                chunks=whole.chunks,
                is_complete=is_complete,
            )
            client, task = begin_request(server, request=request)
            await held.reached.wait()
            client.leave()
            await task
            held.go()
            await until(lambda: "cancelled" in statistics_of(server).requests_ended)
            assert statistics_of(server).requests_ended.keys() == {"cancelled"}
            assert statistics_of(server).kv_cache_usage == 0

    for is_complete in (True, False):
        asyncio.run(run(is_complete))


def test_a_reader_that_is_slow_holds_up_itself_alone(tmp_path: Path) -> None:
    """Answers that cannot be sent wait in the streams, which make larger ones of them."""

    async def run() -> list[str]:
        async with serving_language_model(tmp_path / "m") as server:
            request = call_request(
                method("ModelStreamInfer"),
                infer_request(
                    {"text_input": "hi", "stream": True},
                    temperature=0.0,
                    max_tokens=200,
                    ignore_eos=True,
                ),
            )
            sent: list[Any] = []
            is_read = asyncio.Event()

            async def send(event: Any) -> None:
                sent.append(event)
                if event["type"] == "http.response.body":
                    await is_read.wait()

            client, _ = begin_request(server, request=request)
            slow = asyncio.ensure_future(
                server.application(request.scope, _receiver(request), send)
            )
            await until(lambda: statistics_of(server).requests_ended.get("length") == 2)
            is_read.set()
            await slow
            quick = read_result(
                read_answer(client.sent), answer_class=service_pb2.ModelStreamInferResponse
            )
            late = read_result(read_answer(sent), answer_class=service_pb2.ModelStreamInferResponse)
            return [
                "".join(texts_of(message.infer_response)[0] for message in result.messages)
                for result in (quick, late)
            ]

    quick, late = asyncio.run(run())
    assert quick == late


def _receiver(request: Request) -> Any:
    events = iter(request.events)
    never = asyncio.Event()

    async def receive() -> Any:
        for event in events:
            return event
        await never.wait()
        raise AssertionError

    return receive
