"""Servers over directories of toy language models: a byte is a token, answers are arithmetic."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from asgi_exchange import Answer, Request, ScriptedClient
from aspira.app import Server
from aspira.contracts.errors import InvalidArgument
from aspira.llm.model_source import SourceOptions
from aspira.llm.model_text import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from aspira.llm.options import EngineOptions
from aspira.llm.runner import Runner, StepBatch
from aspira.settings import Settings
from aspira.testing.toy_decoder import ToyDecoder, next_token
from aspira.testing.toy_tokenizer import END_TOKEN, ByteTokenizer
from serving_toys import make_toy_loader, single_model

MODEL_FILE = "toy.llm"
MAX_CONTEXT = 256


class ByteText:
    """Messages are joined by line feeds; a role `refused` is refused."""

    vocabulary = ByteTokenizer()

    def encode(self, prompt: Prompt) -> TokenPrompt:
        if isinstance(prompt, tuple):
            return prompt
        if isinstance(prompt, TextPrompt):
            return tuple(prompt.text.encode())
        return tuple(render(prompt).encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.vocabulary.decode(token_ids)


def render(prompt: ChatPrompt) -> str:
    if any(message["content"] == "refuse me" for message in prompt.messages):
        raise InvalidArgument("The model's chat template refuses: it said so")
    return "\n".join(message["content"] for message in prompt.messages)


def ignore_step(_: StepBatch) -> None:
    pass


@dataclass
class ToySource:
    """A language model with a toy decoder."""

    options: SourceOptions = field(
        default_factory=lambda: SourceOptions(engine=EngineOptions(watermark=0.0))
    )
    before_step: Callable[[StepBatch], None] = ignore_step
    text: ByteText = field(default_factory=ByteText)

    def make_runner(self, *, cache_mib: int) -> Runner:
        return ToyDecoder(num_blocks=512, max_context=MAX_CONTEXT, before_step=self.before_step)

    def make_text(self, *, max_tokens: int) -> ByteText:
        return self.text

    def predictor_loader(self) -> None:
        return None


@dataclass
class ToyFinder:
    """Finds a toy in each directory that has `MODEL_FILE`."""

    source: ToySource = field(default_factory=ToySource)

    def __call__(self, path: Path) -> ToySource | None:
        return self.source if (path / MODEL_FILE).exists() else None


class HeldDecoder:
    """A source whose steps, or those of one version, wait while it is told to hold.

    `reached` says that one does.
    """

    def __init__(self, *, version: int | None = None, **engine_options: Any) -> None:
        self._thread_name = "" if version is None else f"engine-m-{version}"
        self._go = threading.Event()
        self._go.set()
        self.num_steps = 0
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        options = EngineOptions(watermark=0.0, **engine_options)
        self.source = ToySource(SourceOptions(engine=options), before_step=self._before_step)

    def hold(self) -> None:
        self._go.clear()

    def go(self) -> None:
        self._go.set()

    def _before_step(self, _: StepBatch) -> None:
        if not threading.current_thread().name.startswith(self._thread_name):
            return
        if not self._go.is_set():
            self._loop.call_soon_threadsafe(self.reached.set)
        assert self._go.wait(60)
        self.num_steps += 1


def expected(prompt: str, *, max_tokens: int) -> tuple[str, str, int]:
    """The greedy text, the finish reason, and the number of tokens."""
    tokens, found = list(prompt.encode()), []
    while len(found) < max_tokens:
        found.append(next_token([*tokens, *found], vocab_size=257))
        if found[-1] == END_TOKEN:
            return bytes(found[:-1]).decode("utf-8", "replace"), "stop", len(found)
    return bytes(found).decode("utf-8", "replace"), "length", len(found)


def write_language_model(base_path: Path, *, version: int = 1) -> Path:
    path = base_path / str(version)
    path.mkdir(parents=True)
    (path / MODEL_FILE).touch()
    return path


@asynccontextmanager
async def serving_language_model(
    base_path: Path, *, source: ToySource | None = None, settings: Settings | None = None
) -> AsyncIterator[Server]:
    """A started server of a toy language model named `m`, drained at the end."""
    if not base_path.exists():  # noqa: ASYNC240
        write_language_model(base_path)
    server = Server(
        settings or single_model(base_path),
        make_runtime_loader=make_toy_loader,
        find_language_model=ToyFinder(source or ToySource()),
    )
    await server.start()
    try:
        yield server
    finally:
        assert await server.drain(grace_s=30)


def with_options(base_path: Path, **changes: Any) -> Settings:
    """Settings of one model with other `LanguageModelOptions`."""
    settings = single_model(base_path)
    return replace(settings, language_models=replace(settings.language_models, **changes))


def events_of(answer: Answer) -> list[Any]:
    """The data of a stream's events; the last must be `[DONE]`, which is left out."""
    datas = []
    for block in answer.body.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        assert block.startswith("data: "), block
        datas.append(block.removeprefix("data: "))
    assert datas.pop() == "[DONE]"
    return [json.loads(data) for data in datas]


async def until(is_met: Callable[[], bool]) -> None:
    """Return once it holds; a test's own time limit ends the wait."""
    while not is_met():
        await asyncio.sleep(0.005)


def begin_request(
    server: Server, *, request: Request
) -> tuple[ScriptedClient, asyncio.Future[None]]:
    """A request under way: its client, and the task that answers it."""
    client = ScriptedClient(request)
    task = asyncio.ensure_future(server.application(request.scope, client.receive, client.send))
    return client, task


def statistics_of(server: Server) -> Any:
    ((_, model),) = server._manager.ready()
    return model.statistics


async def check_that_leaving_ends_the_work(base_path: Path, *, request: Request) -> None:
    """A request for many tokens whose client leaves amid a step costs that step, no more."""
    held = HeldDecoder()
    async with serving_language_model(base_path, source=held.source) as server:
        held.hold()
        client, task = begin_request(server, request=request)
        await held.reached.wait()
        client.leave()
        await task
        num_steps = held.num_steps
        held.go()
        await until(lambda: "cancelled" in statistics_of(server).requests_ended)
        assert held.num_steps - num_steps == 1
        assert statistics_of(server).kv_cache_usage == 0
        assert statistics_of(server).num_requests_running == 0
