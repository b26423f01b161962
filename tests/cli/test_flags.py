from dataclasses import replace

import pytest

from aspira.cli.flags import Flag, ParsedFlags, UnfitValue, guess_meant, parse_flags, usage
from aspira.contracts.errors import InvalidArgument
from aspira.settings import Settings

FLAGS = (
    Flag("port", "listener.grpc_port", 8500, "A port."),
    Flag("model_name", "models.name", "default", "A name."),
    Flag("fraction", "tensorflow.gpu_memory_fraction", 0.5, "A fraction."),
    Flag("cors", "rest.is_cors_enabled", default=False, help="A switch."),
    Flag("timeout_in_ms", "rest.timeout_s", 30000, "Milliseconds.", lambda value: value / 1000),
)


def parse(*arguments: str) -> ParsedFlags:
    return parse_flags(arguments, flags=FLAGS, settings=Settings())


def settings_of(*arguments: str) -> Settings:
    parsed = parse(*arguments)
    assert parsed.unknown == ()
    return parsed.settings


def test_no_arguments_leave_the_settings_as_they_are() -> None:
    assert parse() == ParsedFlags(Settings(), ())


def test_each_flag_sets_its_setting() -> None:
    settings = settings_of("--port=1", "--model_name=m", "--fraction=0.25", "--cors")
    assert settings.listener.grpc_port == 1
    assert settings.models.name == "m"
    assert settings.tensorflow.gpu_memory_fraction == 0.25
    assert settings.rest.is_cors_enabled is True


def test_other_settings_are_kept() -> None:
    before = replace(Settings(), models=replace(Settings().models, name="m", base_path="/m"))
    after = parse_flags(["--model_name=n"], flags=FLAGS, settings=before).settings
    assert after == replace(before, models=replace(before.models, name="n"))


def test_a_value_is_converted_to_the_settings_unit() -> None:
    assert settings_of("--timeout_in_ms=1500").rest.timeout_s == 1.5


def test_the_last_of_a_flag_wins() -> None:
    assert settings_of("--port=1", "--cors", "--port=2", "--cors=0").listener.grpc_port == 2
    assert settings_of("--cors", "--cors=false").rest.is_cors_enabled is False


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--cors", True),
        ("--cors=true", True),
        ("--cors=TRUE", True),
        ("--cors=1", True),
        ("--cors=false", False),
        ("--cors=False", False),
        ("--cors=0", False),
    ],
)
def test_forms_of_a_bool(argument: str, value: bool) -> None:
    assert settings_of("--cors=1", "--cors=0", argument).rest.is_cors_enabled is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("+7", 7),
        ("007", 7),
        (" 7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_forms_of_an_integer(text: str, value: int) -> None:
    assert settings_of(f"--port={text}").listener.grpc_port == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("-.5", -0.5), ("1e-3", 0.001), (" 2.", 2.0), ("inf", float("inf"))],
)
def test_forms_of_a_float(text: str, value: float) -> None:
    assert settings_of(f"--fraction={text}").tensorflow.gpu_memory_fraction == value


@pytest.mark.parametrize("text", ["", " ", "a b", "x=y", "--port=1", "\u00e9"])
def test_a_string_is_taken_as_it_is(text: str) -> None:
    assert settings_of(f"--model_name={text}").models.name == text


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("cors", ""),
        ("cors", "yes"),
        ("cors", "2"),
        ("cors", " true"),
        ("port", ""),
        ("port", "x"),
        ("port", "1.0"),
        ("port", "1e3"),
        ("port", "0x10"),
        ("port", "1_000"),
        ("port", "1 "),
        ("port", "1\n"),
        ("port", "8500x"),
        ("port", "\N{FULLWIDTH DIGIT ONE}"),
        ("port", "9223372036854775808"),
        ("port", "-9223372036854775809"),
        ("port", "9" * 5000),
        ("fraction", ""),
        ("fraction", "half"),
        ("fraction", "0.5x"),
        ("fraction", "1_0.5"),
        ("fraction", "0.5 "),
        ("fraction", "nan"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(flag: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(f"--{flag}={text}")
    assert caught.value.message == f"Couldn't interpret value {text} for flag {flag}."


def test_a_value_that_cannot_be_converted_is_refused() -> None:
    def refuse(value: str) -> str:
        raise ValueError(value)

    flags = (Flag("kind", "models.name", "a", "A kind.", refuse),)
    with pytest.raises(InvalidArgument, match=r"Couldn't interpret value b for flag kind\."):
        parse_flags(["--kind=b"], flags=flags, settings=Settings())


def test_a_refusal_may_say_what_would_fit() -> None:
    def refuse(value: str) -> str:
        raise UnfitValue("It takes a letter.")

    flags = (Flag("kind", "models.name", "a", "A kind.", refuse),)
    with pytest.raises(InvalidArgument) as caught:
        parse_flags(["--kind=5"], flags=flags, settings=Settings())
    assert caught.value.message == ("Couldn't interpret value 5 for flag kind. It takes a letter.")


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("--model_nam=m", "; did you mean --model_name?"),
        ("--model-name=m", "; did you mean --model_name?"),
        ("--model_name", "; did you mean --model_name=VALUE?"),
        ("--nothing_like_it=m", ""),
        ("m", ""),
        ("--", ""),
    ],
)
def test_what_a_mistyped_flag_may_have_meant(argument: str, meant: str) -> None:
    flags = (Flag("model_name", "models.name", "a", "A name."),)
    assert guess_meant(argument, flags=flags) == meant


@pytest.mark.parametrize(
    "arguments",
    [
        ("--other",),
        ("--other=1",),
        ("-port=1",),
        ("port=1",),
        ("--nocors",),
        ("--PORT=1",),
        ("--port",),
        ("--port", "1"),
        ("----port=1",),
        ("--",),
        ("--", "--port=1", "--cors"),
        ("",),
        ("--=1",),
    ],
)
def test_everything_else_is_unknown(arguments: tuple[str, ...]) -> None:
    assert parse(*arguments) == ParsedFlags(Settings(), arguments)


def test_unknown_arguments_do_not_keep_flags_from_being_parsed() -> None:
    parsed = parse("--other", "--port=1", "x", "--cors", "--", "--port=2")
    assert parsed.settings == settings_of("--port=1", "--cors")
    assert parsed.unknown == ("--other", "x", "--", "--port=2")


def test_usage() -> None:
    assert usage(FLAGS, program="server") == (
        "usage: server\n"
        "Flags:\n"
        "\t--port=8500                      \tint64\tA port.\n"
        '\t--model_name="default"           \tstring\tA name.\n'
        "\t--fraction=0.5                   \tfloat\tA fraction.\n"
        "\t--cors=false                     \tbool\tA switch.\n"
        "\t--timeout_in_ms=30000            \tint64\tMilliseconds.\n"
    )
