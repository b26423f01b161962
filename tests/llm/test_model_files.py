import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from aspira.contracts.errors import InvalidArgument, ResourceExhausted, ServingError
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import (
    OPTIONS_FILE,
    ModelFiles,
    ModelKind,
    find_model_files,
    make_options,
    read_options,
)
from language_models import smollm2_directory

LLAMA = '{"architectures": ["LlamaForCausalLM"]}'


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / name.replace("_DOT_", ".")).write_text(text)
    return directory


def kind_of(directory: Path) -> ModelKind | None:
    files = find_model_files(directory)
    return files.kind if files else None


def test_a_gguf_file_of_any_name() -> None:
    files = find_model_files(smollm2_directory())
    assert files is not None
    assert (files.kind, files.weights.suffix) == (ModelKind.GGUF, ".gguf")


def test_a_hugging_face_directory(tmp_path: Path) -> None:
    write(tmp_path, config_DOT_json=LLAMA)
    assert kind_of(tmp_path) is None
    write(tmp_path, model_DOT_safetensors="")
    assert find_model_files(tmp_path) == ModelFiles(tmp_path, ModelKind.HUGGING_FACE, tmp_path)


def test_an_ir_of_a_decoder(tmp_path: Path) -> None:
    write(tmp_path, config_DOT_json=LLAMA, openvino_model_DOT_xml="", openvino_model_DOT_bin="")
    assert kind_of(tmp_path) is ModelKind.OPENVINO_IR


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"saved_model_DOT_pb": ""},
        {"openvino_model_DOT_xml": ""},
        {"model_DOT_safetensors": ""},
        {"model_DOT_safetensors": "", "config_DOT_json": '{"architectures": ["BertModel"]}'},
        {"model_DOT_safetensors": "", "config_DOT_json": '{"layers": 3}'},
        {"model_DOT_safetensors": "", "config_DOT_json": "not JSON"},
        {"model_DOT_safetensors": "", "config_DOT_json": '["LlamaForCausalLM"]'},
    ],
)
def test_other_models_are_left_to_others(tmp_path: Path, files: dict[str, str]) -> None:
    assert kind_of(write(tmp_path, **files)) is None


def test_several_gguf_files_are_one_too_many(tmp_path: Path) -> None:
    write(tmp_path, a_DOT_gguf="", b_DOT_gguf="")
    with pytest.raises(InvalidArgument, match=r"2 GGUF files \(a\.gguf, b\.gguf\)"):
        find_model_files(tmp_path)


def options_of(directory: Path, text: str | None) -> Any:
    if text is not None:
        (directory / OPTIONS_FILE).write_text(text)
    return read_options(ModelFiles(directory, ModelKind.GGUF, directory / "m.gguf"))


def test_options_are_tables(tmp_path: Path) -> None:
    assert options_of(tmp_path, None) == {}
    assert options_of(tmp_path, "[decoder]\ncache_mib = 7 # small\n") == {
        "decoder": {"cache_mib": 7}
    }


@pytest.mark.parametrize("text", ["cache_mib = 7", "[decoder", "a = \x00"])
def test_an_options_file_that_is_not_understood(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match=OPTIONS_FILE):
        options_of(tmp_path, text)


def test_an_options_file_is_small(tmp_path: Path) -> None:
    with pytest.raises(ResourceExhausted):
        options_of(tmp_path, "#" * (64 << 10) + "\n")


def test_what_a_table_leaves_out_keeps_its_default() -> None:
    options = make_options(
        DecoderOptions, table={"precision": "f32", "cache_mib": 9}, name="decoder"
    )
    assert options == DecoderOptions(precision="f32", cache_mib=9)


@dataclass(frozen=True)
class Sample:
    count: int = 0
    share: float = 0.0
    is_on: bool = False
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize("table", [{"count": 3}, {"share": 1}, {"share": 0.5}, {"kind": "b"}])
def test_values_of_the_right_type(table: dict[str, Any]) -> None:
    assert make_options(Sample, table=table, name="x") == Sample(**table)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"cout": 1}, "no entry cout; it knows count, share, is_on, kind"),
        ({"count": 1.0}, "count = 1.0 is not of type int"),
        ({"count": True}, "count = True is not of type int"),
        ({"share": True}, "of type float"),
        ({"is_on": 1}, "of type bool"),
        ({"kind": "c"}, "kind = 'c' is not one of 'a', 'b'"),
        ({"kind": ["a"]}, "is not one of"),
    ],
)
def test_values_that_do_not_fit(table: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make_options(Sample, table=table, name="x")


def test_a_config_too_large_to_be_one_is_not_read_whole(tmp_path: Path) -> None:
    from aspira.llm.weights.bounded_files import read_bytes

    (tmp_path / "config.json").write_text(json.dumps({"a": "b" * 100}))
    with pytest.raises(ServingError, match="longer than 50 bytes"):
        read_bytes(tmp_path / "config.json", max_bytes=50)
