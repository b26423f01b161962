import sys

import pytest

from aspira.cli import tensorflow_model_server
from aspira.cli.main import version_text
from aspira.settings import Settings

EXIT_FAILED = 255
USAGE = "usage: tensorflow_model_server\nFlags:\n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What would have been served."""
    settings: list[Settings] = []

    def serve(wanted: Settings) -> int:
        settings.append(wanted)
        return 17

    monkeypatch.setattr(tensorflow_model_server, "serve", serve)
    return settings


def test_flags_are_taken_as_the_original_takes_them(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--port=1", "--rest_api_port=2", "--model_name=m", "--model_base_path=/m"]
    assert tensorflow_model_server.run(arguments) == 17
    (settings,) = served
    assert (settings.listener.grpc_port, settings.listener.rest_port) == (1, 2)
    assert (settings.models.name, settings.models.base_path) == ("m", "/m")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")


def test_rest_and_metrics_are_off_unless_asked_for(served: list[Settings]) -> None:
    tensorflow_model_server.run(["--model_base_path=/m"])
    (settings,) = served
    assert settings.listener.grpc_port == 8500
    assert settings.listener.rest_port == 0
    assert settings.process.is_metrics_default is False


def test_unknown_arguments_are_told_and_tolerated(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--no_such_flag", "--port=1", "--grpc_max_thread=8", "stray"]
    assert tensorflow_model_server.run(arguments) == 17
    (settings,) = served
    assert settings.listener.grpc_port == 1
    printed = capsys.readouterr()
    assert printed.out.startswith(f"unknown argument: --no_such_flag\n{USAGE}")
    assert printed.err == "".join(
        f"WARNING: ignoring unknown argument {argument}: it has NO EFFECT here\n"
        for argument in ("--no_such_flag", "--grpc_max_thread=8", "stray")
    )


def test_what_is_not_supported_or_has_no_effect_is_told_and_tolerated(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    unsupported = "--thread_pool_factory_config_file=/p"
    arguments = ["--grpc_max_threads=8", unsupported, "--xla_cpu_compilation_enabled"]
    assert tensorflow_model_server.run(["--model_base_path=/m", *arguments]) == 17
    assert len(served) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "WARNING: --thread_pool_factory_config_file is NOT SUPPORTED and has NO EFFECT here: "
        "there are no factories of thread pools, as in the original's own binary\n"
        "INFO: --grpc_max_threads has no effect here: one event loop serves all connections; "
        "--num_run_threads bounds the runs of a model\n"
        "INFO: --xla_cpu_compilation_enabled has no effect here: XLA is never turned off: a model "
        "that asks to be compiled is compiled\n"
    )


def test_foreign_flags_that_ask_for_nothing_are_silent(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--enable_batching=false", "--thread_pool_factory_config_file="]
    assert tensorflow_model_server.run(arguments) == 17
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    assert len(served) == 1


def test_a_value_that_does_not_fit_ends_the_command(
    served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tensorflow_model_server.run(["--version", "--port=http"]) == EXIT_FAILED
    printed = capsys.readouterr()
    assert printed.err == "Couldn't interpret value http for flag port.\n"
    assert printed.out.startswith(USAGE)
    assert served == []


@pytest.mark.parametrize("arguments", [["--help"], ["--port=1", "--help"], ["--help", "--other"]])
def test_help_is_a_failure_as_in_the_original(
    arguments: list[str], served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tensorflow_model_server.run(arguments) == EXIT_FAILED
    printed = capsys.readouterr().out
    assert printed.startswith(USAGE)
    assert "\t--rest_api_port=0 " in printed
    assert served == []


def test_help_after_another_unknown_argument_is_unknown_too(served: list[Settings]) -> None:
    assert tensorflow_model_server.run(["--other", "--help"]) == 17
    assert len(served) == 1


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--version=true"], ["--version=1"], ["--port=1", "--version=TRUE"]],
)
def test_version(
    arguments: list[str], served: list[Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tensorflow_model_server.run(arguments) == 0
    assert capsys.readouterr().out == f"{version_text()}\n"
    assert served == []


def test_the_command_exits_with_the_status(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tensorflow_model_server", "--model_base_path=/m"])
    with pytest.raises(SystemExit) as caught:
        tensorflow_model_server.main()
    assert caught.value.code == 17
    assert len(served) == 1
