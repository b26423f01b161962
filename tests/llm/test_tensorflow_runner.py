"""Decoders that were exported as SavedModels: the contract, NumPy's logits, transformers' texts."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aspira.contracts.errors import (
    DataLoss,
    FailedPrecondition,
    Internal,
    InvalidArgument,
)
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import find_model_files
from aspira.llm.runner import Runner
from aspira.llm.saved_decoders.description import description_path
from aspira.llm.saved_decoders.export import export_saved_model
from language_models import (
    Chunk,
    greedy,
    run,
    smollm2_directory,
    step_batch,
    tiny_weights,
    write_hugging_face,
)
from runner_contract import RunnerContract

PROMPT = np.random.default_rng(3).integers(0, 61, 300).tolist()
GOLDEN = json.loads((Path(__file__).parent / "smollm2_golden.json").read_text())["prompts"]


def load(directory: Path, **options: Any) -> Runner:
    files = find_model_files(directory)
    assert files is not None
    return load_runner(files, options=DecoderOptions(**{"cache_mib": 2, **options}))


def export_tiny(base: Path, *, precision: Any = "f32") -> Path:
    weights = tiny_weights(has_head=True, has_bias=False, has_head_norms=False)
    write_hugging_face(base / "source", architecture="LlamaForCausalLM", weights=weights)
    export_saved_model(base / "source", destination=base / "m" / "1", precision=precision)
    return base / "m" / "1"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_tiny(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def runner(exported: Path) -> Iterator[Runner]:
    loaded = load(exported)
    yield loaded
    loaded.close()


def test_it_is_a_runner(runner: Runner) -> None:
    # Longer than two blocks, and than the span of blocks that attention takes at once.
    RunnerContract(runner, tolerance=1e-4).check_all(PROMPT[:140])


def test_what_it_says_of_itself(runner: Runner) -> None:
    assert (runner.block_size, runner.vocab_size, runner.max_context) == (32, 61, 256)
    # 2 layers, keys and values, 2 heads, 32 tokens, 16 numbers of 4 bytes; one block is nobody's.
    assert runner.num_blocks == (2 << 20) // (2 * 2 * 2 * 32 * 16 * 4) - 1


def test_half_precision_is_a_runner_too(tmp_path: Path, runner: Runner) -> None:
    rounded = load(export_tiny(tmp_path, precision="bf16"), cache_mib=1)
    try:
        RunnerContract(rounded, tolerance=0.3).check_all(PROMPT[:70])
        assert rounded.kv_fingerprint != runner.kv_fingerprint
        assert rounded.export_blocks([0]).nbytes * 2 == runner.export_blocks([0]).nbytes
        [exact] = run(runner, Chunk(PROMPT[:40], past=0, blocks=[0, 1]))
        [close] = run(rounded, Chunk(PROMPT[:40], past=0, blocks=[0, 1]))
        assert 0 < np.abs(exact - close).max() < 1
    finally:
        rounded.close()


def test_what_is_not_a_number_stays_in_its_sequence(runner: Runner) -> None:
    """Blocks that held such values are used again, partly filled."""
    expected = run(runner, Chunk(PROMPT[:5], past=0, blocks=[3]))
    payload = runner.export_blocks([7])
    runner.import_blocks([7], payload=np.full_like(payload, 0xFF))
    [poisoned] = run(runner, Chunk(PROMPT[32:33], past=32, blocks=[7, 8]))
    assert np.isnan(poisoned).all()
    both = run(
        runner,
        Chunk(PROMPT[:5], past=0, blocks=[7]),
        Chunk(PROMPT[:5], past=0, blocks=[8]),
    )
    np.testing.assert_allclose(both, np.concatenate([expected, expected]), atol=1e-4)


def test_a_step_copies_nothing_of_the_pool(exported: Path) -> None:
    check_that_nothing_is_copied(load(exported, cache_mib=256))


def check_that_nothing_is_copied(runner: Runner) -> None:
    """Neither peak of memory nor work grow with the pool: a copy of a cache is a quarter of it."""
    try:
        chunk = Chunk(PROMPT[:1], past=32, blocks=[0, runner.num_blocks - 1])
        fill(runner)
        run(runner, chunk)
        Path("/proc/self/clear_refs").write_text("5")
        resident, faults = memory_kib("VmRSS"), num_page_faults()
        for _ in range(20):
            run(runner, chunk)
        assert memory_kib("VmHWM") - resident < 32 << 10
        # Twenty copies would touch some 300,000 pages.
        assert num_page_faults() - faults < 10_000
    finally:
        runner.close()


def fill(runner: Runner) -> None:
    """Have each block take its memory."""
    blocks = range(runner.num_blocks)
    payload = np.zeros((len(blocks), runner.export_blocks([0]).shape[1]), np.uint8)
    runner.import_blocks(blocks, payload=payload)


def memory_kib(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0])


def num_page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def test_an_idle_cache_takes_no_memory_and_a_closed_one_is_used_again(exported: Path) -> None:
    sizes = []
    for _ in range(4):
        before = memory_kib("VmRSS")
        runner = load(exported, cache_mib=128)
        taken = memory_kib("VmRSS") - before
        fill(runner)
        runner.close()
        sizes.append(memory_kib("VmRSS"))
        assert taken < 32 << 10
    assert sizes[-1] - sizes[0] < 128 << 10


def test_compiled_steps_answer_alike_and_nothing_is_compiled_late(
    exported: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever the tiny model's times are, it is compiled.
    monkeypatch.setattr("aspira.llm.saved_decoders.compiled_steps._WORTHWHILE", 1e9)
    compiled = load(exported, compiled_sequences=3)
    # 1, 2 and 3 sequences, each with up to one and up to two spans of its own.
    assert compiled._compiled.num_compilations == 6  # type: ignore[attr-defined]
    for one in (runner, compiled):
        run(one, *(Chunk(PROMPT[i : i + 31], past=0, blocks=[i]) for i in range(4)))
    steps: list[Any] = []
    monkeypatch.setattr(compiled, "_step", lambda **inputs: steps.append(inputs) or inputs)
    try:
        lengths = [31] * 3
        for num in (1, 2, 3, 2):
            chunks = [Chunk([7 + i], past=lengths[i], blocks=[i, 10 + i]) for i in range(num)]
            lengths[:num] = [length + 1 for length in lengths[:num]]
            exact = run(runner, *chunks)
            np.testing.assert_allclose(run(compiled, *chunks), exact, atol=1e-4)
        rows = run(compiled, *chunks, rows=[1])
        np.testing.assert_allclose(rows, run(runner, *chunks, rows=[1]), atol=1e-4)
        assert steps == []
        assert compiled.num_late_compilations == 0
        run(compiled, Chunk(PROMPT[:2], past=0, blocks=[0]))
        assert len(steps) == 1
    finally:
        compiled.close()


def test_a_compiled_step_copies_nothing_of_the_pool_either(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aspira.llm.saved_decoders.compiled_steps._WORTHWHILE", 1e9)
    check_that_nothing_is_copied(load(exported, cache_mib=256, compiled_sequences=1))


def test_what_does_not_pay_is_not_compiled_further(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aspira.llm.saved_decoders.compiled_steps._WORTHWHILE", 0)
    tried = load(exported, compiled_sequences=4)
    try:
        assert tried._compiled.num_compilations == 1  # type: ignore[attr-defined]
        run(tried, Chunk([1], past=0, blocks=[0]))
        assert tried.num_late_compilations == 0
        assert tried._compiled.num_compilations == 1  # type: ignore[attr-defined]
    finally:
        tried.close()


@pytest.mark.parametrize(
    "options",
    [{"precision": "bf16"}, {"cache_precision": "u8"}, {"weight_format": "int8"}],
)
def test_a_precision_that_it_was_not_exported_in_is_refused(
    exported: Path, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidArgument, match="exported in f32"):
        load(exported, **options)
    assert load(exported, precision="f32").vocab_size == 61


def test_threads_are_not_for_one_model_to_choose(exported: Path) -> None:
    with pytest.raises(InvalidArgument, match="num_threads"):
        load(exported, num_threads=1)


@pytest.mark.parametrize("past", [300])
def test_a_step_outside_the_cache_is_refused(runner: Runner, past: int) -> None:
    batch = step_batch([Chunk([1, 2], past=0, blocks=[0])], block_size=32)
    with pytest.raises(Internal):
        runner.run(batch._replace(past_lens=np.array([past], np.int32)))


def test_a_payload_of_another_model_is_refused(runner: Runner) -> None:
    payload = runner.export_blocks([0])
    with pytest.raises(InvalidArgument, match="exported by another model"):
        runner.import_blocks([0], payload=payload[:, 1:])


def test_another_format_is_refused(tmp_path: Path) -> None:
    directory = export_tiny(tmp_path)
    path = description_path(directory)
    described = json.loads(path.read_text())
    path.write_text(json.dumps({**described, "format": 0}))
    with pytest.raises(FailedPrecondition, match="export the model again"):
        load(directory)
    path.write_text(json.dumps({**described, "head_size": "x"}))
    with pytest.raises(DataLoss, match="head_size"):
        load(directory)


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    directory = export_tiny(tmp_path)
    for name in ("saved_model.pb", "variables/variables.index"):
        (directory / name).write_bytes(b"\xff" * 40)
        with pytest.raises(DataLoss, match=str(directory)):
            load(directory)


@pytest.mark.slow
def test_smollm2_says_what_it_says_in_transformers(tmp_path: Path) -> None:
    """See `test_openvino_runner` for where the texts come from."""
    export_saved_model(smollm2_directory(), destination=tmp_path / "1", precision="f32")
    runner = load(tmp_path / "1", cache_mib=64)
    try:
        for prompt in GOLDEN:
            [logits] = run(runner, Chunk(prompt["ids"], past=0, blocks=range(2, 6)))
            best = np.argsort(logits)[: -len(prompt["top"]) - 1 : -1]
            assert best.tolist() == [token for token, _ in prompt["top"]]
            wanted = [value for _, value in prompt["top"]]
            np.testing.assert_allclose(logits[best], wanted, atol=1e-3)
        chosen = greedy(runner, prompts=[prompt["ids"] for prompt in GOLDEN], num=32)
        assert chosen == [prompt["generated"] for prompt in GOLDEN]
    finally:
        runner.close()
