import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from aspira.cli import main
from aspira.cli.flag_table import server_flags
from aspira.cli.foreign_flags import FOREIGN_FLAGS
from aspira.settings import Settings

EXIT_FAILED = 255
EXIT_FORCED = 130
# What takes long to import.
FRAMEWORKS = {"numpy", "tensorflow", "grpc", "google.protobuf", "uvicorn", "pyvoy"}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What would have been served."""
    settings: list[Settings] = []

    def serve(wanted: Settings) -> int:
        settings.append(wanted)
        return 17

    monkeypatch.setattr(main, "serve", serve)
    return settings


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_the_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 0
    printed = capsys.readouterr()
    assert "usage: aspira COMMAND" in printed.out
    assert all(
        f"\n  {command} " in printed.out for command in ("serve", "demo", "warmup", "version")
    )
    assert printed.err == ""


@pytest.mark.parametrize("arguments", [["version"], ["--version"], ["serve", "--version"]])
def test_versions_are_printed_in_tensorflow_servings_form(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 0
    assert capsys.readouterr().out == (
        f"TensorFlow ModelServer: Aspira {metadata.version('aspira')}\n"
        f"TensorFlow Library: {metadata.version('tensorflow')}\n"
    )


def test_versions_are_printed_without_tensorflow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = metadata.version

    def version(name: str) -> str:
        if name == "tensorflow":
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(main.metadata, "version", version)
    assert main.run(["version"]) == 0
    assert capsys.readouterr().out.endswith("TensorFlow Library: not installed\n")


def test_an_unknown_command_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["sevre", "--port=1"]) == EXIT_FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("aspira: no command 'sevre'\n")
    assert "usage: aspira COMMAND" in printed.err


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--port=1", "--help", "--other"]])
def test_serve_help_lists_every_flag(
    arguments: list[str], served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["serve", *arguments]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: aspira serve\nFlags:\n")
    for flag in (*server_flags(default_rest_port=8501), *FOREIGN_FLAGS):
        assert f"\t--{flag.name}=" in printed
    assert "--rest_api_port=8501 " in printed
    assert served == []


def test_serve_serves_what_the_flags_say(served: list[Settings]) -> None:
    assert main.run(["serve", "--model_name=m", "--model_base_path=/m"]) == 17
    (settings,) = served
    assert (settings.models.name, settings.models.base_path) == ("m", "/m")
    assert settings.listener.rest_port == 8501
    assert settings.process.is_metrics_default is True


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("--prot=1", "; did you mean --port?"),
        ("--ssl_config=/x", "; did you mean --ssl_config_file?"),
        ("--grpc_max_threads", "; did you mean --grpc_max_threads=VALUE?"),
        ("--port", "; did you mean --port=VALUE?"),
        ("m", ""),
        ("--", ""),
    ],
)
def test_serve_refuses_what_it_does_not_know_by_name(
    argument: str, meant: str, served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["serve", "--model_base_path=/m", argument]) == EXIT_FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"aspira serve: unknown argument: {argument}{meant} (flags are written --name=value; "
        "`aspira serve --help` lists them)\n"
    )
    assert served == []


def test_serve_refuses_what_is_not_supported_with_the_reason(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model_base_path=/m", "--thread_pool_factory_config_file=/p"]
    assert main.run(["serve", *arguments]) == EXIT_FAILED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "aspira serve: --thread_pool_factory_config_file is not supported: there are no factories "
        "of thread pools, as in the original's own binary\n"
    )
    assert served == []


def test_serve_accepts_what_has_no_effect_and_says_so(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["serve", "--model_base_path=/m", "--skip_initialize_tpu"]) == 17
    assert capsys.readouterr().err == (
        "INFO: --skip_initialize_tpu has no effect here: no TPU is initialized in the first place\n"
    )
    assert len(served) == 1


def test_serve_is_silent_about_foreign_flags_that_ask_for_nothing(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--enable_batching=false", "--enable_profiler=false", "--flush_filesystem_caches"]
    assert main.run(["serve", *arguments]) == 17
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert len(served) == 1


def test_serve_refuses_a_value_that_does_not_fit(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("port", "grpc_max_threads"):
        assert main.run(["serve", f"--{name}=many"]) == EXIT_FAILED
        assert capsys.readouterr().err == (
            f"aspira serve: Couldn't interpret value many for flag {name}.\n"
        )
    assert served == []


@pytest.mark.parametrize(("arguments", "status"), [(["version"], 0), (["nothing"], EXIT_FAILED)])
def test_the_command_exits_with_the_status(
    arguments: list[str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["aspira", *arguments])
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == status


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("aspira")
    reader, writer = socket.socketpair()
    reader.close()
    with (tmp_path / "errors").open("wb") as errors, writer:
        status = subprocess.call([program, "serve", "--help"], stdout=writer, stderr=errors)
    assert status == EXIT_FAILED
    assert (tmp_path / "errors").read_bytes() == b""


def test_an_interrupt_is_no_error_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run", interrupt)
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert caught.value.code == EXIT_FORCED
