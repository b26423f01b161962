"""Each family, built by OpenVINO from files, against a decoder in NumPy."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aspira.contracts.errors import DataLoss
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import ModelFiles
from decoder_cases import CASES, TOKENS, expected_logits, write_case
from language_models import Chunk, run, write_safetensors


def all_logits(files: ModelFiles, **options: Any) -> Any:
    runner = load_runner(files, options=DecoderOptions(cache_mib=4, **options))
    return run(runner, Chunk(TOKENS, past=0, blocks=[4, 0, 2]), rows=range(len(TOKENS)))


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_the_formulas(tmp_path: Path, name: str) -> None:
    files, _ = write_case(tmp_path, name)
    logits = all_logits(files, precision="f32")
    expected = expected_logits(files)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, atol=2e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_weights_are_read_as_they_are(tmp_path: Path, dtype: str) -> None:
    files, weights = write_case(tmp_path, "qwen2")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    halves = {name: weight.astype(kind) for name, weight in weights.items()}
    write_safetensors(tmp_path / "model.safetensors", halves)
    np.testing.assert_allclose(
        all_logits(files, precision="f32"), expected_logits(files), atol=2e-4
    )


def test_int8_weights_are_near(tmp_path: Path) -> None:
    files, _ = write_case(tmp_path, "llama")
    logits, expected = (
        all_logits(files, precision="f32", weight_format="int8"),
        expected_logits(files),
    )
    difference = np.abs(logits - expected)
    assert 0 < difference.mean() < 0.05 * np.abs(expected).mean()


def test_a_row_of_zeros_stays_zero_in_int8(tmp_path: Path) -> None:
    files, weights = write_case(tmp_path, "llama")
    weights["lm_head.weight"][7] = 0
    write_safetensors(tmp_path / "model.safetensors", weights)
    logits = all_logits(files, precision="f32", weight_format="int8")
    assert not logits[:, 7].any()
    assert np.isfinite(logits).all()


def test_weights_in_several_files(tmp_path: Path) -> None:
    files, weights = write_case(tmp_path, "llama")
    expected = expected_logits(files)
    (tmp_path / "model.safetensors").unlink()
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in parts.items():
        write_safetensors(tmp_path / file, {name: weights[name] for name in held})
    index = {name: file for file, held in parts.items() for name in held}
    (tmp_path / "model.safetensors.index.json").write_text(
        f'{{"weight_map": {str(index).replace(chr(39), chr(34))}}}'
    )
    np.testing.assert_allclose(all_logits(files, precision="f32"), expected, atol=2e-4)


def test_a_missing_weight_is_named(tmp_path: Path) -> None:
    files, weights = write_case(tmp_path, "llama")
    del weights["model.layers.1.mlp.up_proj.weight"]
    write_safetensors(tmp_path / "model.safetensors", weights)
    with pytest.raises(DataLoss, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        all_logits(files, precision="f32")
