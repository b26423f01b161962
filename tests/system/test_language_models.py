"""SmolLM2 behind real sockets, asked by OpenAI's own client, over both listeners."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import requests

from language_models import smollm2_directory
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


def test_a_client_that_leaves_frees_its_blocks_at_once(
    server: ServerProcess, client: openai.OpenAI
) -> None:
    order: Any = {"model": "m", "messages": LONG, "max_tokens": 4000, "stream": True}
    stream = client.chat.completions.create(**order, extra_body={"ignore_eos": True})
    for _, _ in zip(range(3), stream, strict=False):
        pass
    assert gauge(server, "num_requests_running") == 1
    assert gauge(server, "kv_cache_usage_perc") > 0
    generated = gauge(server, "generation_tokens_total")
    stream.close()
    deadline = time.monotonic() + 20
    while gauge(server, "num_requests_running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert gauge(server, "kv_cache_usage_perc") == 0
    assert gauge(server, "generation_tokens_total") - generated < 500


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
