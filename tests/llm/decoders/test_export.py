"""A tiny decoder, exported, served again, and what the rounding did to it."""

import json
import sys
from pathlib import Path

import pytest

from aspira.contracts.errors import AlreadyExists, InvalidArgument, NotFound, Unimplemented
from aspira.llm.decoders.compression import WeightPrecision
from aspira.llm.decoders.config_file import describe_config
from aspira.llm.decoders.export import ExportOrder, describe, export_openvino
from aspira.llm.model_files import ModelKind, find_model_files
from aspira.llm.model_text import TextPrompt, load_text
from aspira.llm.quality import Quality
from aspira.llm.weights.model_weights import open_weights
from decoder_cases import write_case
from encoder_models import write_tokenizer
from language_models import smollm2_directory

TEXT = "a b c d e f g h i j k l m n o p q r s t " * 8


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source" / "1"
    directory.mkdir(parents=True)
    write_case(directory, "llama")
    write_tokenizer(directory / "tokenizer.json")
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    return directory


def export(source: Path, destination: Path, weights: WeightPrecision = "f32") -> Quality:
    text = source.parent.parent / "text.txt"
    text.write_text(TEXT)
    told: list[str] = []
    order = ExportOrder(destination, weights, text)
    quality = export_openvino(source, order=order, report=told.append)
    assert told[0] == "Building the graph ..."
    return quality


def test_nothing_is_lost_in_f32(source: Path, tmp_path: Path) -> None:
    written = tmp_path / "exported" / "1"
    quality = export(source, written)
    assert quality.perplexity_after == pytest.approx(quality.perplexity_before, rel=0.02)
    assert quality.agreement > 0.95
    assert sorted(path.name for path in written.iterdir()) == [
        "aspira_quality.json",
        "chat_template.jinja",
        "config.json",
        "openvino_model.bin",
        "openvino_model.xml",
        "tokenizer.json",
    ]
    assert [path.name for path in written.parent.iterdir()] == ["1"]
    files = find_model_files(written)
    assert files is not None
    assert files.kind is ModelKind.OPENVINO_IR
    tokens = load_text(files, max_tokens=64).encode(TextPrompt("a b"))
    assert tokens == (0, 4, 5, 2)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_integers_are_smaller_and_told_of(
    source: Path, tmp_path: Path, weights: WeightPrecision
) -> None:
    export(source, tmp_path / "f32" / "1")
    quality = export(source, tmp_path / "small" / "1", weights)
    told = json.loads((tmp_path / "small" / "1" / "aspira_quality.json").read_text())
    assert told["weights"] == weights
    assert told["num_tokens"] == quality.num_tokens == len(TEXT.split()) + 1
    assert told["perplexity_after"] == quality.perplexity_after
    assert told["agreement"] == quality.agreement
    sizes = [
        (tmp_path / name / "1" / "openvino_model.bin").stat().st_size for name in ("small", "f32")
    ]
    assert sizes[0] < sizes[1] / 2


def test_an_ir_is_rounded_too(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "f32" / "1")
    export(tmp_path / "f32" / "1", tmp_path / "int8" / "1", "int8")
    told = json.loads((tmp_path / "int8" / "1" / "aspira_quality.json").read_text())
    assert told["source"] == "OpenVINO IR"
    assert told["exported_bytes"] < told["source_bytes"]


def test_a_destination_that_is_there_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(AlreadyExists, match="name a new version directory"):
        export(source, tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_what_is_no_decoder(tmp_path: Path) -> None:
    (tmp_path / "empty" / "1").mkdir(parents=True)
    with pytest.raises(InvalidArgument, match="holds no GGUF file"):
        export(tmp_path / "empty" / "1", tmp_path / "out")


def test_without_nncf_nothing_is_begun(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(Unimplemented, match=r"pip install 'aspira\[int8\]'.*--weights=f16"):
        export(source, tmp_path / "out" / "1", "int8")
    assert not (tmp_path / "out").exists()


def test_what_fails_midway_leaves_nothing(source: Path, tmp_path: Path) -> None:
    (source / "tokenizer.json").unlink()
    with pytest.raises(NotFound, match=r"tokenizer\.json"):
        export(source, tmp_path / "out" / "1")
    assert list((tmp_path / "out").iterdir()) == []


def test_quality_in_words() -> None:
    quality = Quality(100, 20.0, 21.0, agreement=0.9)
    assert describe(quality) == (
        "On 100 tokens: perplexity 20.000 before, 21.000 now (+5.00%); the most likely token is "
        "the same in 90.0% of places"
    )
    assert "(-50.00%)" in describe(quality._replace(perplexity_after=10.0))


def test_a_gguf_file_gets_a_config(tmp_path: Path) -> None:
    """Of the real one, which is what other tools would read."""
    files = find_model_files(smollm2_directory())
    assert files is not None
    config, _ = open_weights(files)
    described = describe_config(config, files=files)
    assert described["architectures"] == ["LlamaForCausalLM"]
    assert (described["num_hidden_layers"], described["hidden_size"]) == (30, 576)
    assert described["max_position_embeddings"] == 8192
