from pathlib import Path

import pytest

from aspira.cli.export import run_export
from aspira.cli.serve import EXIT_FAILED
from decoder_cases import write_case
from encoder_models import write_tokenizer


def write_source(directory: Path) -> Path:
    directory.mkdir(parents=True)
    write_case(directory, "llama")
    write_tokenizer(directory / "tokenizer.json")
    return directory


def test_an_openvino_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_source(tmp_path / "source")
    (tmp_path / "text").write_text("a b c d " * 20)
    written = tmp_path / "m" / "1"
    text = f"--text={tmp_path / 'text'}"
    arguments = ["--to", "openvino", "--weights", "f16", text, str(source), str(written)]
    assert run_export(arguments) == 0
    assert (written / "openvino_model.xml").is_file()
    told = capsys.readouterr().err
    assert "perplexity" in told
    assert f"--model_base_path={tmp_path / 'm'}" in told
    assert run_export(arguments) == EXIT_FAILED
    assert "name a new version directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b"], "--to is ''; name one of openvino, savedmodel"),
        (["--to=onnx", "a", "b"], "name one of openvino, savedmodel"),
        (["--to=openvino", "--weights=int3", "a", "b"], "name one of f32, f16, int8, int4"),
        (["--to=savedmodel", "--weights=int8", "a", "b"], "--weights is for --to=openvino alone"),
        (["--precision=f32", "--to=openvino", "a", "b"], "--precision is for --to=savedmodel"),
        (["--to=openvino", "a"], "two directories are wanted"),
        (["--to=openvino", "--speed=1", "a", "b"], "unknown argument: --speed=1"),
        (["--to=openvino", "a", "b"], "holds no GGUF file"),
        (["--to=openvino", "--text=nothing.txt", "source", "b"], "nothing.txt; No such file"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    if "source" in arguments:
        write_source(tmp_path / "source")
    assert run_export(arguments) == EXIT_FAILED
    assert message in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_export(["--help"]) == 0
    assert "--weights" in capsys.readouterr().out
