"""SmolLM2 behind real sockets, asked by the stock clients of each API, over both listeners."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import reduce
from operator import add
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import numpy as np
import openai
import pytest
import requests
import tensorflow as tf
import tritonclient.grpc
import tritonclient.http
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field, SecretStr
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from language_models import smollm2_directory
from system.raw_streams import DONE, RawStream
from system.server_process import ServerProcess

MESSAGES: Any = [{"role": "user", "content": "What is the capital of France?"}]
LONG: Any = [{"role": "user", "content": "Tell me a long story."}]


def add_version(base_path: Path, version: int) -> None:
    """Made aside and renamed, as versions should be: a half of one is not a version."""
    (weights,) = smollm2_directory().glob("*.gguf")
    staged = base_path.parent / f"staged-{version}"
    staged.mkdir(parents=True)
    (staged / "model.gguf").symlink_to(weights)
    (staged / "aspira_llm.toml").write_text("[decoder]\ncache_mib = 128\n")
    base_path.mkdir(exist_ok=True)
    staged.rename(base_path / str(version))


@pytest.fixture(scope="module", params=["envoy", "portable"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp(request.param)
    base_path = directory / "smollm2"
    add_version(base_path, 1)
    flags = (f"--listener={request.param}", "--model_name=m", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=directory / "log") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.rest_url}/v1", api_key="none", max_retries=0) as client:
        yield client


def gauge(server: ServerProcess, name: str) -> float:
    """The sum over versions."""
    page = requests.get(f"{server.rest_url}/monitoring/prometheus/metrics", timeout=10).text
    lines = [line for line in page.splitlines() if line.startswith(f"aspira:{name}{{")]
    assert lines, page
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_a_text_goes_on_sensibly_streamed_or_not(client: openai.OpenAI) -> None:
    order: Any = {"model": "m", "prompt": "The capital of France is", "temperature": 0}
    whole = client.completions.create(**order, max_tokens=12)
    pieces = list(client.completions.create(**order, max_tokens=12, stream=True))
    assert "Paris" in whole.choices[0].text
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_a_chat_is_answered_streamed_or_not(client: openai.OpenAI) -> None:
    order: Any = {"model": "m", "messages": MESSAGES, "temperature": 0, "max_tokens": 20}
    whole = client.chat.completions.create(**order, logprobs=True, top_logprobs=2)
    choice = whole.choices[0]
    assert "Paris" in (choice.message.content or "")
    assert choice.finish_reason == "stop"
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert "".join(one.token for one in choice.logprobs.content) == choice.message.content
    chunks = list(
        client.chat.completions.create(**order, stream=True, stream_options={"include_usage": True})
    )
    *deltas, last = chunks
    assert "".join(c.choices[0].delta.content or "" for c in deltas) == choice.message.content
    assert deltas[0].choices[0].delta.role == "assistant"
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.total_tokens == whole.usage.total_tokens


def test_a_schema_holds(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "Invent a person."}],
        temperature=0,
        max_tokens=60,
        response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": schema}},
    )
    assert answer.choices[0].finish_reason == "stop"
    assert '"age"' in (answer.choices[0].message.content or "")


def test_models_and_errors_are_what_the_client_knows(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    assert client.models.retrieve("m").id == "m"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=1_000_000)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nope", messages=MESSAGES)
    assert unknown.value.code == "model_not_found"


PROMPT = "The capital of France is"
VERY_LONG = 4000

Leave = Callable[[], None]


def triton_inputs(**values: Any) -> list[Any]:
    found = []
    for name, value in values.items():
        datatype = "BOOL" if isinstance(value, bool) else "BYTES"
        found.append(tritonclient.grpc.InferInput(name, [1], datatype))
        elements = np.array([value] if isinstance(value, bool) else [value.encode()])
        found[-1].set_data_from_numpy(elements if datatype == "BOOL" else elements.astype(object))
    return found


def predict_streamed(channel: grpc.Channel) -> Any:
    """As a stub that was generated for it would have it."""
    return channel.stream_stream(
        "/tensorflow.serving.PredictionService/PredictStreamed",
        request_serializer=PredictRequest.SerializeToString,
        response_deserializer=PredictResponse.FromString,
    )


def predict_request(**inputs: Any) -> PredictRequest:
    request = PredictRequest()
    request.model_spec.name = "m"
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def leave_openai(server: ServerProcess) -> Leave:
    client = openai.OpenAI(base_url=f"{server.rest_url}/v1", api_key="none", max_retries=0)
    order: Any = {"model": "m", "messages": LONG, "max_tokens": VERY_LONG, "stream": True}
    stream = client.chat.completions.create(**order, extra_body={"ignore_eos": True})
    for _, _ in zip(range(3), stream, strict=False):
        pass

    def leave() -> None:
        stream.close()
        client.close()

    return leave


def leave_generate_stream(server: ServerProcess) -> Leave:
    body = {"text_input": PROMPT, "max_tokens": VERY_LONG, "ignore_eos": True}
    url = f"{server.rest_url}/v2/models/m/generate_stream"
    response = requests.post(url, json=body, stream=True, timeout=30)
    assert next(response.iter_lines()).startswith(b"data: ")
    return response.close


def leave_triton_stream(server: ServerProcess) -> Leave:
    client = tritonclient.grpc.InferenceServerClient(server.grpc_target)
    has_begun = threading.Event()
    client.start_stream(lambda result, error: has_begun.set())
    client.async_stream_infer(
        "m",
        triton_inputs(text_input=PROMPT, stream=True),
        parameters={"max_tokens": VERY_LONG, "ignore_eos": True},
    )
    assert has_begun.wait(30)

    def leave() -> None:
        client.stop_stream(cancel_requests=True)
        client.close()

    return leave


def leave_predict_streamed(server: ServerProcess) -> Leave:
    channel = grpc.insecure_channel(server.grpc_target)
    request = predict_request(text=PROMPT, max_tokens=VERY_LONG, ignore_eos=True)
    call = predict_streamed(channel)(iter([request]))
    assert next(call).outputs["text"].string_val

    def leave() -> None:
        call.cancel()
        channel.close()

    return leave


@pytest.mark.parametrize(
    "begin", [leave_openai, leave_generate_stream, leave_triton_stream, leave_predict_streamed]
)
def test_a_client_that_leaves_frees_its_blocks_at_once(
    server: ServerProcess, begin: Callable[[ServerProcess], Leave]
) -> None:
    leave = begin(server)
    assert gauge(server, "num_requests_running") == 1
    assert gauge(server, "kv_cache_usage_perc") > 0
    generated = gauge(server, "generation_tokens_total")
    leave()
    deadline = time.monotonic() + 20
    while gauge(server, "num_requests_running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert gauge(server, "kv_cache_usage_perc") == 0
    assert gauge(server, "generation_tokens_total") - generated < 500


def test_tritons_http_client_asks_for_a_text(server: ServerProcess) -> None:
    with closing(
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.rest_port}")
    ) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("m")
        assert not client.is_model_ready("nope")
        assert client.get_model_metadata("m")["inputs"][0]["name"] == "text_input"
        (text_input,) = (tritonclient.http.InferInput("text_input", [1], "BYTES"),)
        text_input.set_data_from_numpy(np.array([PROMPT.encode()], object))
        parameters = {"temperature": 0, "max_tokens": 12}
        for outputs in (None, [tritonclient.http.InferRequestedOutput("text_output")]):
            result = client.infer("m", [text_input], outputs=outputs, parameters=parameters)
            assert b"Paris" in result.as_numpy("text_output")[0]
        with pytest.raises(tritonclient.utils.InferenceServerException, match="nope") as error:
            client.infer("nope", [text_input])
        assert error.value.status() == "404"


def test_tritons_grpc_client_streams_texts(server: ServerProcess) -> None:
    """As the example client of its vLLM backend does, several requests in one stream."""
    sampling = json.dumps({"temperature": "0", "max_tokens": "12"})
    prompts = {"1": PROMPT, "2": "Once upon a time"}
    answers: Queue[Any] = Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc_target) as client:
        assert client.is_model_ready("m")
        assert client.get_model_config("m").config.model_transaction_policy.decoupled
        whole = {
            name: client.infer(
                "m",
                triton_inputs(
                    text_input=prompt, sampling_parameters=sampling, exclude_input_in_output=True
                ),
            ).as_numpy("text_output")[0]
            for name, prompt in prompts.items()
        }
        client.start_stream(lambda result, error: answers.put((result, error)))
        for name, prompt in prompts.items():
            client.async_stream_infer(
                "m",
                triton_inputs(text_input=prompt, stream=True, sampling_parameters=sampling),
                request_id=name,
                outputs=[tritonclient.grpc.InferRequestedOutput("text_output")],
                enable_empty_final_response=True,
            )
        texts, is_ended = dict.fromkeys(prompts, b""), set()
        while len(is_ended) < len(prompts):
            result, error = answers.get(timeout=30)
            assert error is None
            response = result.get_response()
            if response.parameters["triton_final_response"].bool_param:
                is_ended.add(response.id)
            else:
                texts[response.id] += result.as_numpy("text_output")[0]
        client.stop_stream()
    assert b"Paris" in texts["1"]
    assert texts == whole


def test_a_text_is_streamed_by_predict(server: ServerProcess) -> None:
    request = predict_request(text=PROMPT, temperature=0.0, max_tokens=12)
    with grpc.insecure_channel(server.grpc_target) as channel:
        responses = list(predict_streamed(channel)(iter([request]), timeout=30))
        assert b"Paris" in b"".join(one.outputs["text"].string_val[0] for one in responses)
        assert responses[-1].outputs["finish_reason"].string_val[0] == b"length"
        with pytest.raises(grpc.RpcError) as error:
            list(predict_streamed(channel)(iter([predict_request(text="")]), timeout=30))
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]


def test_langchain_chats_streamed_or_not(server: ServerProcess) -> None:
    model = ChatOpenAI(
        base_url=f"{server.rest_url}/v1", api_key=SecretStr("none"), model="m", temperature=0,
        max_retries=0, max_completion_tokens=20,
    )  # fmt: skip
    question = "What is the capital of France?"
    whole = model.invoke(question)
    assert "Paris" in str(whole.content)
    assert whole.response_metadata["finish_reason"] == "stop"
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] > 0
    chunks = list(model.stream(question, stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == whole.content
    (usage,) = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    assert usage["total_tokens"] == whole.usage_metadata["total_tokens"]


class Person(BaseModel):
    """Somebody."""

    name: str = Field(max_length=12)
    age: int


def test_langchain_gets_structured_output(server: ServerProcess) -> None:
    model = ChatOpenAI(
        base_url=f"{server.rest_url}/v1", api_key=SecretStr("none"), model="m", temperature=0,
        max_retries=0, max_completion_tokens=80,
    )  # fmt: skip
    for way in ("json_schema", "function_calling"):
        person = model.with_structured_output(Person, method=way).invoke("Invent a person.")
        assert isinstance(person, Person)


def test_langchain_calls_tools_that_it_forces(server: ServerProcess) -> None:
    model = ChatOpenAI(
        base_url=f"{server.rest_url}/v1", api_key=SecretStr("none"), model="m", temperature=0,
        max_retries=0, max_completion_tokens=80,
    )  # fmt: skip
    bound = model.bind_tools([Person], tool_choice="any")
    for answer in (bound.invoke("Invent a person."), sum_of(bound.stream("Invent a person."))):
        (call,) = answer.tool_calls
        assert call["name"] == "Person"
        Person.model_validate(call["args"])


def sum_of(chunks: Iterator[Any]) -> Any:
    return reduce(add, chunks)


def test_versions_are_swapped_under_streams_that_all_end_well(
    server: ServerProcess, client: openai.OpenAI
) -> None:
    """Eight clients stream without a break while version 2 takes over from version 1."""
    is_over = threading.Event()

    def read_on(_: int) -> list[tuple[str, str | None, int]]:
        found = []
        while not is_over.is_set():
            chunks = list(
                client.chat.completions.create(
                    model="m", messages=LONG, max_tokens=32, stream=True, temperature=0,
                    extra_body={"ignore_eos": True}, stream_options={"include_usage": True},
                )
            )  # fmt: skip
            (fingerprint,) = {chunk.system_fingerprint for chunk in chunks}
            assert chunks[-1].usage is not None
            reason = chunks[-2].choices[0].finish_reason
            found.append((str(fingerprint), reason, chunks[-1].usage.completion_tokens))
        return found

    with ThreadPoolExecutor(8) as pool:
        reading = pool.map(read_on, range(8))
        try:
            add_version(server.log.parent / "smollm2", 2)
            url = f"{server.rest_url}/v1/models/m/versions/1"
            deadline = time.monotonic() + 60
            while requests.get(url, timeout=10).json()["model_version_status"][0]["state"] != "END":
                assert time.monotonic() < deadline
                time.sleep(0.1)
        finally:
            is_over.set()
        found = [one for several in reading for one in several]
    assert {fingerprint for fingerprint, _, _ in found} == {"m@1", "m@2"}
    assert {(reason, num_tokens) for _, reason, num_tokens in found} == {("length", 32)}


def test_many_leave_amid_their_streams_and_nothing_leaks(server: ServerProcess) -> None:
    async def leave(client: openai.AsyncOpenAI, number: int) -> None:
        stream = await client.chat.completions.create(
            model="m", messages=LONG, max_tokens=400, stream=True
        )
        async for _ in stream:
            number -= 1
            if number <= 0:
                break
        await stream.close()

    async def run() -> None:
        url = f"{server.rest_url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            await asyncio.gather(*(leave(client, number % 5) for number in range(24)))

    asyncio.run(run())
    deadline = time.monotonic() + 20
    while gauge(server, "num_requests_running") or gauge(server, "num_requests_waiting"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert gauge(server, "kv_cache_usage_perc") == 0


def test_a_server_process_that_is_killed_breaks_its_streams_and_comes_back(
    server: ServerProcess, request: pytest.FixtureRequest
) -> None:
    """As when a library crashes: it takes its process along, and the supervisor starts another."""
    if "portable" in request.node.name:
        pytest.skip("the portable listener is the process that was started; who started it has to")
    killed = server.serving_pid()

    async def ask(*, max_tokens: int) -> RawStream:
        return await RawStream.ask(
            server.rest_port, model="m", prompt="Once", max_tokens=max_tokens, ignore_eos=True
        )

    async def read(stream: RawStream) -> list[Any]:
        try:
            return [event async for event in stream.events()]
        finally:
            stream.close()

    async def scenario() -> None:
        streams = [await ask(max_tokens=4000) for _ in range(4)]
        readings = [stream.events() for stream in streams]
        for reading in readings:
            await anext(reading)
        os.kill(killed, signal.SIGKILL)
        for reading, stream in zip(readings, streams, strict=True):
            with pytest.raises((EOFError, ConnectionError)):
                _ = [event async for event in reading]
            stream.close()
        # Ports that are closed refuse at once; a test that waits for ever has its time limit.
        while True:
            try:
                events = await read(await ask(max_tokens=2))
            except (EOFError, ConnectionError):
                await asyncio.sleep(0.05)
                continue
            assert events[-1] == DONE
            return

    asyncio.run(scenario())
    assert server.serving_pid() != killed
    assert "The server process died (signal 9); starting it again" in server.output()
