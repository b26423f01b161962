import pytest

from aspira.frontends.listeners.channel_arguments import (
    channel_options,
    connection_options,
    http2_options,
    split_channel_arguments,
    unknown_to_envoy,
)

MAX_INT32 = 2**31 - 1


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", ()),
        ("a=1", ("a=1",)),
        ("a=1,b=x=y,", ("a=1", "b=x=y")),
    ],
)
def test_arguments_are_separated_by_commas(text: str, arguments: tuple[str, ...]) -> None:
    assert split_channel_arguments(text) == arguments


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=1,b", "a=1, b"])
def test_an_argument_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        split_channel_arguments(text)


def test_what_reads_as_an_int32_is_a_number() -> None:
    texts = ("7", "-7", str(MAX_INT32), str(MAX_INT32 + 1), str(-MAX_INT32 - 2), "1_0", "x", "1.5")
    arguments = [f"a{index}={text}" for index, text in enumerate(texts)]
    values = list(channel_options(arguments).values())
    assert values == [7, -7, MAX_INT32, *texts[3:]]


def test_the_last_value_of_a_name_wins() -> None:
    assert channel_options(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}


def test_nothing_is_set_without_arguments() -> None:
    assert http2_options([]) == {}
    assert connection_options([]) == {}
    assert unknown_to_envoy([]) == ()


def test_streams_are_bounded() -> None:
    assert http2_options(["grpc.max_concurrent_streams=100"]) == {"max_concurrent_streams": 100}


@pytest.mark.parametrize(
    ("arguments", "interval", "timeout"),
    [
        (("grpc.keepalive_time_ms=1500",), "1.500s", "20.000s"),
        (("grpc.keepalive_timeout_ms=1",), "7200.000s", "0.001s"),
        (("grpc.keepalive_time_ms=9000", "grpc.keepalive_timeout_ms=3000"), "9.000s", "3.000s"),
    ],
)
def test_keepalive_has_grpcs_defaults(
    arguments: tuple[str, ...], interval: str, timeout: str
) -> None:
    assert http2_options(arguments) == {
        "connection_keepalive": {"interval": interval, "timeout": timeout}
    }


def test_connections_age() -> None:
    arguments = ["grpc.max_connection_idle_ms=1000", "grpc.max_connection_age_ms=60000"]
    assert connection_options(arguments) == {
        "idle_timeout": "1.000s",
        "max_connection_duration": "60.000s",
    }


def test_what_envoy_has_nothing_for_is_named_as_given() -> None:
    arguments = (
        "grpc.max_concurrent_streams=0",
        "grpc.max_connection_age_ms=soon",
        "grpc.http2.max_frame_size=32768",
        "grpc.keepalive_time_ms=5",
    )
    assert unknown_to_envoy(arguments) == arguments[:3]
    assert http2_options(arguments).keys() == {"connection_keepalive"}
    assert connection_options(arguments) == {}
