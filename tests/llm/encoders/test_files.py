from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.errors import InvalidArgument, ServingError, Unimplemented
from aspira.llm.encoders.files import find_encoder_files, read_encoder_options
from aspira.llm.encoders.options import EncoderOptions
from aspira.llm.model_files import find_model_files
from encoder_models import minilm_directory, write_encoder


def touch(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).touch()


def test_the_package_holds_an_encoder_and_no_language_model() -> None:
    assert find_encoder_files(minilm_directory()) is not None
    assert find_model_files(minilm_directory()) is None


@pytest.mark.parametrize(
    ("architecture", "names", "weights"),
    [
        ("BertModel", ["model.safetensors"], ""),
        ("BertModel", ["model.safetensors", "onnx/model.onnx"], ""),
        ("BertModel", ["model.safetensors", "openvino_model.xml"], "openvino_model.xml"),
        ("OtherModel", ["model.safetensors", "onnx/model.onnx"], "onnx/model.onnx"),
        (
            "OtherModel",
            ["openvino/openvino_model.xml", "model.onnx"],
            "openvino/openvino_model.xml",
        ),
        ("OtherModel", ["model.onnx"], "model.onnx"),
    ],
)
def test_which_of_several_files_is_served(
    tmp_path: Path, architecture: str, names: list[str], weights: str
) -> None:
    write_encoder(tmp_path, architectures=[architecture])
    (tmp_path / "model.safetensors").unlink()
    touch(tmp_path, *names)
    files = find_encoder_files(tmp_path)
    assert files is not None
    assert files.weights == tmp_path / weights


@pytest.mark.parametrize(
    ("changes", "removed", "added"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, (), ()),
        ({"architectures": ["BertForSequenceClassification"]}, (), ()),
        ({"architectures": []}, (), ()),
        ({"architectures": "BertModel"}, (), ()),
        ({}, ("model.safetensors",), ()),
        ({}, ("config.json",), ()),
        ({}, (), ("saved_model.pb",)),
    ],
)
def test_what_is_no_encoder(
    tmp_path: Path, changes: dict[str, Any], removed: tuple[str, ...], added: tuple[str, ...]
) -> None:
    write_encoder(tmp_path, **changes)
    for name in removed:
        (tmp_path / name).unlink()
    touch(tmp_path, *added)
    assert find_encoder_files(tmp_path) is None


def test_an_architecture_that_is_not_built(tmp_path: Path) -> None:
    write_encoder(tmp_path, architectures=["NomicBertModel"])
    with pytest.raises(Unimplemented, match=r"NomicBertModel is not built here .*optimum-cli"):
        find_encoder_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[decoder]\ncache_mib = 1", Unimplemented, r"no table \[decoder\]"),
        ("[encoder]\nbatch = 1", InvalidArgument, "no entry batch; it knows precision"),
        ('[encoder]\nprecision = "f16"', InvalidArgument, "one of 'f32', 'bf16'"),
        ("[encoder]\nmax_batch_texts = 0", InvalidArgument, "must be positive"),
    ],
)
def test_options_that_are_wrong(
    tmp_path: Path, text: str, error: type[ServingError], message: str
) -> None:
    write_encoder(tmp_path)
    (tmp_path / "aspira_llm.toml").write_text(text)
    files = find_encoder_files(tmp_path)
    assert files is not None
    with pytest.raises(error, match=message):
        read_encoder_options(files)


def test_options(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    (tmp_path / "aspira_llm.toml").write_text("[encoder]\nmax_batch_texts = 8")
    files = find_encoder_files(tmp_path)
    assert files is not None
    assert read_encoder_options(files) == EncoderOptions(max_batch_texts=8)
