"""Files, tokenizer, chat template, decoder and engine together, as a server puts them together."""

import asyncio
import json
from pathlib import Path

import pytest

from aspira.contracts.generation import FinishReason, GenerateRequest, SamplingParameters
from aspira.llm.chat_template import read_chat_template
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.engine import Engine
from aspira.llm.model_files import find_model_files
from aspira.llm.options import EngineOptions
from aspira.llm.special_tokens import read_special_tokens
from aspira.llm.tokenizer import load_tokenizer
from generation_toys import running_engine
from language_models import smollm2_directory

GOLDEN = json.loads((Path(__file__).parent / "smollm2_golden.json").read_text())
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = SamplingParameters(temperature=0.0)


async def answer(engine: Engine, prompt: list[int]) -> tuple[str, list[int], FinishReason | None]:
    request = GenerateRequest(tuple(prompt), 0.0, 32, sampling=GREEDY)
    async with engine.submit(request) as stream:
        deltas = [delta async for delta in stream]
    text = "".join(delta.text for delta in deltas)
    return text, [token for delta in deltas for token in delta.token_ids], deltas[-1].finish_reason


@pytest.mark.slow
def test_a_language_model_answers() -> None:
    files = find_model_files(smollm2_directory())
    assert files is not None
    special = read_special_tokens(files)
    tokenizer = load_tokenizer(files, special_tokens=special, max_tokens=8192)
    template = read_chat_template(
        files, special_tokens=special, max_characters=tokenizer.max_characters
    )
    assert template is not None
    chat = tokenizer.encode(template.render(CHAT))
    prompts = [prompt["ids"] for prompt in GOLDEN["prompts"]]

    async def scenario(engine: Engine) -> None:
        first = await asyncio.gather(*(answer(engine, prompt) for prompt in [chat, *prompts]))
        assert first[0][0] == "The capital of France is Paris."
        assert first[0][2] is FinishReason.STOP
        for (_, tokens, _), prompt in zip(first[1:], GOLDEN["prompts"], strict=True):
            expected = prompt["generated"]
            assert tokens == expected[: len(tokens)]
            assert len(tokens) == 32 or tokens[-1] in tokenizer.eos_token_ids
        again = await asyncio.gather(*(answer(engine, prompt) for prompt in [chat, *prompts]))
        assert again == first
        assert engine.statistics.prefix_cache_hits > 0

    with running_engine(
        lambda: load_runner(files, options=DecoderOptions(precision="f32", cache_mib=64)),
        options=EngineOptions(max_step_tokens=48),
        vocabulary=tokenizer,
    ) as engine:
        asyncio.run(scenario(engine))
