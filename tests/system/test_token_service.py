"""Streams over real sockets while versions change, clients leave, and engines fail.

The model is a toy, so that hundreds of streams cost little and each token can be worked out; all
else is the server that users run. Where time matters, files hold the server up rather than clocks.
"""

import asyncio
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from aspira.settings import DEFAULT_METRICS_PATH
from language_toys import MODEL_FILE
from serving_toys import config_entry, config_list
from system.raw_streams import DONE, RawStream
from system.server_process import ServerProcess

TESTS = Path(__file__).parents[1]
MODELS = ("swapped", "left", "late", "dying", "dead", "hung")
NUM_SWAPS = 20
NUM_STREAMS = 32
NUM_LEAVERS = 2000
NUM_AT_ONCE = 64
MAX_GROWTH_BYTES = 16 * 2**20
VOCAB_SIZE = 257
TIMEOUT_S = 30


class ToyLanguageServer(ServerProcess):
    """The toy models of the directories beside `log`."""

    def __init__(self, *, log: Path) -> None:
        path = os.pathsep.join([str(TESTS), *sys.path])
        super().__init__(log=log, environment={"PYTHONPATH": path})
        config_file = log.with_name("models.txt")
        entries = [config_entry(log.with_name(name)) for name in MODELS]
        text = config_list(*entries).replace("'tensorflow'", "'language_model'")
        config_file.write_text(text)
        script = Path(__file__).with_name("toy_language_server.py")
        ports = (str(self.grpc_port), str(self.rest_port))
        self.arguments = [sys.executable, str(script), *ports, str(config_file)]

    def base_path(self, name: str) -> Path:
        return self.log.with_name(name)

    def get(self, path: str) -> requests.Response:
        return requests.get(f"{self.rest_url}{path}", timeout=TIMEOUT_S)

    def metric(self, name: str, *, model: str) -> float:
        """The sum over a model's series."""
        start = f'aspira:{name}{{model_name="{model}",'
        lines = self.get(DEFAULT_METRICS_PATH).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def publish(base_path: Path, version: int, **options: float) -> Path:
    """All at once, as versions should be."""
    staged = base_path.with_name(f"{base_path.name}-staged")
    staged.mkdir()
    (staged / MODEL_FILE).touch()
    (staged / "options.json").write_text(json.dumps(options))
    base_path.mkdir(exist_ok=True)
    staged.rename(base_path / str(version))
    return base_path / str(version)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToyLanguageServer]:
    directory = tmp_path_factory.mktemp("toys")
    options: dict[str, dict[str, float]] = {
        "late": {"total_s": 0.001},
        "hung": {"stall_timeout_s": 1.0},
    }
    for name in MODELS:
        publish(directory / name, 1, **options.get(name, {}))
    with ToyLanguageServer(log=directory / "log") as server:
        yield server


def said_by(version: int, prompt: str, *, max_tokens: int) -> str:
    tokens = list(prompt.encode())
    total = sum((position + 1) * token for position, token in enumerate(tokens))
    said = []
    for _ in range(max_tokens):
        said.append((total + version) % VOCAB_SIZE)
        total += (len(tokens) + len(said)) * said[-1]
    return bytes(token for token in said if token < 256).decode("utf-8", "replace")


@dataclass
class Said:
    """What one stream said, and how it ended."""

    text: str = ""
    fingerprints: frozenset[str] = frozenset()
    finish_reason: str | None = None
    is_done: bool = False
    error_code: str | None = None


async def read(stream: RawStream) -> Said:
    said = Said()
    async for event in stream.events():
        if event == DONE:
            said.is_done = True
        elif "error" in event:
            said.error_code = event["error"]["code"]
        else:
            (choice,) = event["choices"]
            said.text += choice["text"]
            said.finish_reason = choice["finish_reason"]
            said.fingerprints |= {event["system_fingerprint"]}
    stream.close()
    return said


async def open_stream(server: ServerProcess, model: str, *, max_tokens: int = 20) -> RawStream:
    body = {"model": model, "prompt": "hi", "temperature": 0, "ignore_eos": True}
    return await RawStream.ask(server.rest_port, **body, max_tokens=max_tokens)


async def ask(server: ServerProcess, model: str, *, max_tokens: int = 20) -> Said:
    return await read(await open_stream(server, model, max_tokens=max_tokens))


def is_right(said: Said, *, version: int, max_tokens: int = 20) -> bool:
    text = said_by(version, "hi", max_tokens=max_tokens)
    return (said.text, said.finish_reason, said.is_done) == (text, "length", True)


async def until(is_met: Callable[[], bool]) -> None:
    """Asked on a thread: it may be a request of its own. The test's time limit ends the wait."""
    while not await asyncio.to_thread(is_met):
        await asyncio.sleep(0.02)


def test_twenty_swaps_under_streams_drop_break_and_mix_none(server: ToyLanguageServer) -> None:
    base_path, url = server.base_path("swapped"), "/v1/models/swapped"
    found: list[Said] = []

    def is_alone(version: int) -> bool:
        entries = server.get(url).json()["model_version_status"]
        states = {int(entry["version"]): entry["state"] for entry in entries}
        return states.pop(version, "") == "AVAILABLE" and set(states.values()) <= {"END"}

    async def stream_on(is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            found.append(await ask(server, "swapped", max_tokens=60))

    async def swap_all() -> None:
        is_over = asyncio.Event()
        clients = [asyncio.create_task(stream_on(is_over)) for _ in range(NUM_STREAMS)]
        for version in range(2, NUM_SWAPS + 2):
            publish(base_path, version)
            await until(lambda version=version: is_alone(version))  # type: ignore[misc]
            shutil.rmtree(base_path / str(version - 1))
        is_over.set()
        await asyncio.gather(*clients)

    asyncio.run(swap_all())
    for said in found:
        (fingerprint,) = said.fingerprints
        assert is_right(said, version=int(fingerprint.partition("@")[2]), max_tokens=60), said
    seen = set().union(*(said.fingerprints for said in found))
    assert seen >= {f"swapped@{version}" for version in range(2, NUM_SWAPS + 1)}


async def leave_or_read(server: ServerProcess, rng: random.Random) -> str:
    """One client of many kinds; says how it came out."""
    is_late, is_streamed = rng.random() < 0.2, rng.random() < 0.8
    num_tokens = 200 if is_late else rng.randrange(1, 100)
    prompt = "to be or not to be"[: rng.randrange(1, 18)]
    stream = await RawStream.ask(
        server.rest_port,
        model="late" if is_late else "left",
        prompt=prompt,
        max_tokens=num_tokens,
        temperature=0,
        ignore_eos=True,
        stream=is_streamed,
    )
    num_wanted, outcome, text = rng.choice((0, 1, 5, 1000)), "left", ""
    events = aiter(stream.events())
    for _ in range(num_wanted):
        event = await anext(events)
        if event == DONE:
            outcome = "read"
            break
        if "error" in event:
            outcome = event["error"]["code"]
            break
        text += event["choices"][0]["text"]
        if not is_streamed:
            outcome = "read"
            break
    stream.close()
    said = said_by(1, prompt, max_tokens=num_tokens)
    assert text == said if outcome == "read" else said.startswith(text.rstrip("\ufffd"))
    return outcome


def resources(server: ServerProcess) -> tuple[int, int]:
    """Open files and threads of the process that serves."""
    process = Path(f"/proc/{server.serving_pid()}")
    return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))


def is_idle(server: ToyLanguageServer, model: str) -> bool:
    busy = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return not any(server.metric(name, model=model) for name in busy)


def test_two_thousand_who_leave_or_are_late_leave_nothing_behind(
    server: ToyLanguageServer,
) -> None:
    rng = random.Random(7)
    seeds = [rng.random() for _ in range(NUM_LEAVERS)]

    async def be_clients(seeds: list[float]) -> list[str]:
        async def be_one(mine: list[float]) -> list[str]:
            return [await leave_or_read(server, random.Random(seed)) for seed in mine]

        groups = [seeds[start::NUM_AT_ONCE] for start in range(NUM_AT_ONCE)]
        return [outcome for some in await asyncio.gather(*map(be_one, groups)) for outcome in some]

    async def settle() -> None:
        for model in ("left", "late"):
            await until(lambda model=model: is_idle(server, model))  # type: ignore[misc]

    async def scenario() -> Counter[str]:
        outcomes = await be_clients(seeds[:500])
        await settle()
        before, resident = resources(server), server.resident_bytes()
        outcomes += await be_clients(seeds[500:])
        await settle()
        await until(lambda: resources(server) <= before)
        assert server.resident_bytes() - resident < MAX_GROWTH_BYTES
        assert "Traceback" not in server.output()
        assert is_right(await ask(server, "left"), version=1)
        return Counter(outcomes)

    outcomes = asyncio.run(scenario())
    assert outcomes.keys() == {"left", "read", "deadline_exceeded"}
    for model in ("left", "late"):
        check_books(server, model)


def check_books(server: ToyLanguageServer, model: str) -> None:
    """What was admitted has ended; who got a token has a first one, and is not counted twice."""

    def metric(name: str) -> float:
        return server.metric(name, model=model)

    assert metric("requests_accepted_total") == metric("request_success_total") > 0
    assert metric("e2e_request_latency_seconds_count") == metric("requests_accepted_total")
    num_first = metric("time_to_first_token_seconds_count")
    assert num_first == metric("request_prefill_time_seconds_count") > 0
    assert metric("generation_tokens_total") == (
        num_first + metric("inter_token_latency_seconds_count")
    )
    assert metric("request_generation_tokens_sum") == metric("generation_tokens_total")


def test_a_runner_that_dies_ends_every_stream_at_once_and_comes_back(
    server: ToyLanguageServer,
) -> None:
    path = server.base_path("dying") / "1"

    def told() -> str:
        return str(server.get("/readyz").json().get("unavailable", {}).get("dying", ""))

    async def scenario() -> None:
        (path / "hang").touch()
        streams = [await open_stream(server, "dying", max_tokens=200) for _ in range(8)]
        for stream in streams:
            await stream.start()
        # Another runner cannot be made yet: who is told now has not waited for it.
        (path / "held_load").touch()
        (path / "die").write_text("10")
        (path / "hang").unlink()
        for said in await asyncio.gather(*map(read, streams)):
            assert (said.error_code, said.is_done) == ("unavailable", False)
            assert said.text
        assert "another one is being made" in await asyncio.to_thread(told)
        assert (await asyncio.to_thread(server.get, "/healthz")).status_code == 200
        (path / "held_load").unlink()
        await until(lambda: told() == "")
        assert is_right(await ask(server, "dying"), version=1)

    asyncio.run(scenario())
    assert server.metric("num_runner_rebuilds_total", model="dying") == 1


def test_an_engine_that_cannot_come_back_makes_the_process_unhealthy(
    server: ToyLanguageServer,
) -> None:
    base_path = server.base_path("dead")

    async def scenario() -> None:
        (base_path / "1" / "no_load").touch()
        (base_path / "1" / "die").write_text("3")
        assert (await ask(server, "dead")).error_code == "unavailable"
        await until(lambda: server.get("/healthz").status_code == 503)
        assert (
            "engine has failed" in server.get("/healthz").json()["lost"]["{name: dead version: 1}"]
        )
        assert "dead" in server.get("/readyz").json()["unavailable"]
        refused = await RawStream.ask(server.rest_port, model="dead", prompt="hi")
        assert [event["error"]["code"] async for event in refused.events()] == ["unavailable"]
        assert refused.status == 503
        refused.close()
        publish(base_path, 2)
        await until(lambda: server.get("/healthz").status_code == 200)
        assert is_right(await ask(server, "dead"), version=2)

    asyncio.run(scenario())


def test_a_step_that_hangs_ends_every_stream_and_is_forgiven_when_it_ends(
    server: ToyLanguageServer,
) -> None:
    hang = server.base_path("hung") / "1" / "hang"

    async def scenario() -> None:
        hang.touch()
        said = await asyncio.gather(*(ask(server, "hung") for _ in range(4)))
        assert {(one.error_code, one.is_done) for one in said} == {("unavailable", False)}
        assert "no step for 1 s" in server.get("/readyz").json()["unavailable"]["hung"]
        assert server.get("/healthz").status_code == 503
        hang.unlink()
        await until(lambda: server.get("/healthz").status_code == 200)
        assert is_right(await ask(server, "hung"), version=1)

    asyncio.run(scenario())
