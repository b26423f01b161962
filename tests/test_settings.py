import dataclasses
from dataclasses import replace
from typing import Any

import pytest

from aspira.batching.options import BatchingOptions
from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.frontends.admin.options import AdminOptions
from aspira.frontends.listeners.options import ListenerOptions
from aspira.lifecycle.options import LifecycleOptions
from aspira.runtimes.options import TensorflowOptions, WarmupOptions
from aspira.settings import (
    ModelOptions,
    Settings,
    check_settings,
    decode_settings,
    encode_settings,
)

SERVABLE = replace(Settings(), models=ModelOptions(base_path="/m"))
FIELDS = [
    (group.name, field.name)
    for group in dataclasses.fields(Settings)
    for field in dataclasses.fields(getattr(Settings(), group.name))
]


def other_value(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1.5
        case str():
            return f"{value} \u00e9\n\"'"
        case tuple():
            return (*value, "more")
    raise AssertionError(f"no other value of {value!r}")


def change(settings: Settings, *, group: str, field: str) -> Settings:
    options = getattr(settings, group)
    changed = replace(options, **{field: other_value(getattr(options, field))})
    return replace(settings, **{group: changed})


def test_defaults_survive_the_way_to_a_child_process() -> None:
    assert decode_settings(encode_settings(Settings())) == Settings()


@pytest.mark.parametrize(("group", "field"), FIELDS, ids=".".join)
def test_each_field_survives_the_way_to_a_child_process(group: str, field: str) -> None:
    settings = change(Settings(), group=group, field=field)
    assert settings != Settings()
    assert decode_settings(encode_settings(settings)) == settings


def test_encoded_settings_are_one_line() -> None:
    settings = replace(Settings(), models=ModelOptions(name="a\nb"))
    assert "\n" not in encode_settings(settings)


def test_infinite_values_survive_too() -> None:
    settings = replace(
        Settings(), process=replace(Settings().process, shutdown_grace_s=float("inf"))
    )
    assert decode_settings(encode_settings(settings)) == settings


@pytest.mark.parametrize(
    "settings",
    [
        SERVABLE,
        replace(Settings(), models=ModelOptions(config_file="/models.txt")),
        replace(
            SERVABLE, listener=ListenerOptions(grpc_port=0, rest_port=0, grpc_socket_path="/s")
        ),
        replace(SERVABLE, listener=ListenerOptions(grpc_port=8500, rest_port=0)),
        replace(SERVABLE, listener=ListenerOptions(ssl_config_file="/s")),
        replace(SERVABLE, tensorflow=TensorflowOptions(session_parallelism=2)),
        replace(
            SERVABLE,
            tensorflow=TensorflowOptions(intra_op_parallelism=2, inter_op_parallelism=2),
        ),
    ],
    ids=["path", "config file", "socket", "one port", "encrypted", "session threads", "op threads"],
)
def test_settings_that_agree_pass(settings: Settings) -> None:
    check_settings(settings)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            replace(SERVABLE, listener=ListenerOptions(grpc_port=0, rest_port=8501)),
            (
                "At least one of server_options.grpc_port or server_options.grpc_socket_path must "
                "be set."
            ),
        ),
        (
            replace(SERVABLE, listener=ListenerOptions(grpc_port=8500, rest_port=8500)),
            (
                "--port and --rest_api_port are both 8500; every port accepts both protocols, so "
                "set --rest_api_port=0 to use one port"
            ),
        ),
        (
            Settings(),
            "Both server_options.model_base_path and server_options.model_config_file are empty!",
        ),
        (
            replace(
                SERVABLE,
                tensorflow=TensorflowOptions(
                    session_parallelism=1, intra_op_parallelism=2, inter_op_parallelism=3
                ),
            ),
            (
                "Either configure server_options.tensorflow_session_parallelism or "
                "(server_options.tensorflow_intra_op_parallelism, "
                "server_options.tensorflow_inter_op_parallelism) separately. You cannot "
                "configure all."
            ),
        ),
        (
            replace(SERVABLE, listener=ListenerOptions(use_alts=True, ssl_config_file="/s")),
            "Either use_alts_credentials must be false or ssl_config_file must be empty.",
        ),
        (
            replace(SERVABLE, admin=AdminOptions(port=8501)),
            (
                "--admin_port is 8501, as another port is; it needs one of its own, which is open "
                "before models are loaded"
            ),
        ),
        (
            replace(SERVABLE, listener=ListenerOptions(grpc_port=8500, rest_port=65536)),
            "--rest_api_port is 65536; ports are 1 to 65535, and 0 is none",
        ),
        (
            replace(SERVABLE, admin=AdminOptions(port=-1)),
            "--admin_port is -1; ports are 1 to 65535, and 0 is none",
        ),
        (
            replace(SERVABLE, lifecycle=LifecycleOptions(num_load_threads=-1)),
            "--num_load_threads is -1; it cannot be less than 0",
        ),
        (
            replace(SERVABLE, lifecycle=LifecycleOptions(num_unload_threads=-2)),
            "--num_unload_threads is -2; it cannot be less than 0",
        ),
        (
            replace(SERVABLE, lifecycle=LifecycleOptions(ready_marker="a/b")),
            (
                "--version_ready_marker is a/b; it is the name of a file in each version "
                "directory, without a path"
            ),
        ),
        (
            replace(SERVABLE, batching=BatchingOptions(num_threads=-3)),
            "--num_run_threads is -3; it cannot be less than 0",
        ),
        (
            replace(SERVABLE, batching=BatchingOptions(parameters_file="/b")),
            (
                "server_options.batching_parameters_file is set without setting "
                "server_options.enable_batching to true."
            ),
        ),
        (
            replace(SERVABLE, batching=BatchingOptions(is_per_model=True)),
            "--enable_per_model_batching_parameters does nothing without --enable_batching",
        ),
        (
            replace(SERVABLE, batching=BatchingOptions(is_enabled=True, latency_target_s=0.1)),
            "--latency_target_ms needs --batching=auto",
        ),
        (
            replace(SERVABLE, batching=BatchingOptions(mode="auto", latency_target_s=-0.1)),
            "--latency_target_ms cannot be less than 0",
        ),
        (
            replace(SERVABLE, warmup=WarmupOptions(is_for_all_batch_sizes=True)),
            (
                "--enable_all_batch_sizes_warmup needs --enable_batching, which says what sizes "
                "there are; without it --warmup_batch_sizes names them"
            ),
        ),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings: Settings, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_settings(settings)
    assert caught.value.message == text


def test_encryption_that_is_not_there_is_never_left_out() -> None:
    with pytest.raises(Unimplemented) as caught:
        check_settings(replace(SERVABLE, listener=ListenerOptions(use_alts=True)))
    assert caught.value.message == (
        "--use_alts_credentials is not supported; use --ssl_config_file"
    )
