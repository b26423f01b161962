from typing import Any

import pytest

from aspira.cli.flag_table import server_flags
from aspira.cli.flags import Flag, FlagValue, flag_kind, parse_flags
from aspira.contracts.errors import InvalidArgument
from aspira.settings import Settings
from own_flags import OWN_FLAGS

FLAGS = server_flags(default_rest_port=8501)

TENSORFLOW_SERVING_DEFAULTS: dict[str, FlagValue] = {
    "port": 8500,
    "grpc_socket_path": "",
    "rest_api_port": 0,
    "rest_api_timeout_in_ms": 30000,
    "rest_api_enable_cors_support": False,
    "allow_version_labels_for_unavailable_models": False,
    "model_config_file": "",
    "model_config_file_poll_wait_seconds": 0,
    "ssl_config_file": "",
    "use_alts_credentials": False,
    "grpc_channel_arguments": "",
    "mixed_precision": "",
    "model_name": "default",
    "model_base_path": "",
    "num_load_threads": 0,
    "num_unload_threads": 0,
    "max_num_load_retries": 5,
    "load_retry_interval_micros": 60000000,
    "file_system_poll_wait_seconds": 1,
    "tensorflow_session_parallelism": 0,
    "tensorflow_session_config_file": "",
    "tensorflow_intra_op_parallelism": 0,
    "tensorflow_inter_op_parallelism": 0,
    "per_process_gpu_memory_fraction": 0.0,
    "prefer_tflite_model": False,
    "num_tflite_pools": 0,
    "num_tflite_interpreters_per_pool": 1,
    "saved_model_tags": "serve",
    "enable_model_warmup": True,
    "num_request_iterations_for_warmup": 0,
    "monitoring_config_file": "",
    "platform_config_file": "",
    "enable_signature_method_name_check": False,
    "enable_grpc_healthcheck_service": False,
    "enable_profiler": True,
    "enable_serialization_as_tensor_content": False,
    "enable_batching": False,
    "batching_parameters_file": "",
    "enable_per_model_batching_parameters": False,
}
# Health is told unless it is turned off; its options class says so.
OTHER_DEFAULTS = {"enable_grpc_healthcheck_service": True}
# Where not every text fits.
OTHER_VALUES = {
    "batching": "auto",
    "compat": "strict",
    "listener": "portable",
    "mixed_precision": "bfloat16",
    "grpc_channel_arguments": "grpc.max_concurrent_streams=7",
    "accelerator": "auto",
    "precision": "bf16",
    "accelerator_batch_sizes": "1,32",
    "warmup_batch_sizes": "1,8",
}
# A flag that stands for others.
ALSO_CHANGED = {"compat": ("enable_grpc_healthcheck_service",)}


def setting_of(settings: Settings, flag: Flag) -> Any:
    group, field = flag.setting.split(".")
    return getattr(getattr(settings, group), field)


def parse(*arguments: str) -> Settings:
    parsed = parse_flags(arguments, flags=FLAGS, settings=Settings())
    assert parsed.unknown == ()
    return parsed.settings


def text_of(value: FlagValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_the_default_shown_is_the_settings_default(flag: Flag) -> None:
    assert parse(f"--{flag.name}={text_of(flag.default)}") == Settings()


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_a_flag_changes_the_setting_it_names_and_no_other(flag: Flag) -> None:
    other = OTHER_VALUES.get(flag.name)
    if other is None:
        other = {"bool": text_of(not flag.default), "string": "/x"}.get(flag_kind(flag), "7")
    changed = parse(f"--{flag.name}={other}")
    differing = {
        candidate.name
        for candidate in FLAGS
        if setting_of(changed, candidate) != setting_of(Settings(), candidate)
    }
    assert differing == {flag.name, *ALSO_CHANGED.get(flag.name, ())}


def test_names_are_unique() -> None:
    names = [flag.name for flag in FLAGS]
    assert len(set(names)) == len(names)


def test_no_two_flags_set_the_same_setting() -> None:
    settings = [flag.setting for flag in FLAGS]
    assert len(set(settings)) == len(settings)


def test_every_flag_is_tensorflow_servings_or_known_to_be_ours() -> None:
    assert {flag.name for flag in FLAGS} == TENSORFLOW_SERVING_DEFAULTS.keys() | OWN_FLAGS


def test_defaults_are_tensorflow_servings() -> None:
    shown = {flag.name: flag.default for flag in server_flags(default_rest_port=0)}
    shared = {name: shown[name] for name in TENSORFLOW_SERVING_DEFAULTS}
    assert shared == TENSORFLOW_SERVING_DEFAULTS | OTHER_DEFAULTS
    assert all(type(shared[name]) is type(TENSORFLOW_SERVING_DEFAULTS[name]) for name in shared)


def test_every_flag_is_explained_in_a_sentence() -> None:
    assert [flag.name for flag in FLAGS if not flag.help.endswith(".")] == []


def test_units_are_converted() -> None:
    settings = parse(
        "--rest_api_timeout_in_ms=1500",
        "--load_retry_interval_micros=2500000",
        "--file_system_poll_wait_seconds=3",
        "--shutdown_grace_seconds=4.5",
    )
    assert settings.rest.timeout_s == pytest.approx(1.5)
    assert settings.lifecycle.load_retry_interval_s == pytest.approx(2.5)
    assert settings.lifecycle.poll_interval_s == 3
    assert settings.process.shutdown_grace_s == 4.5


@pytest.mark.parametrize(
    ("text", "tags"),
    [("serve", ("serve",)), ("serve,gpu", ("serve", "gpu")), (" a , b,", ("a", "b")), ("", ())],
)
def test_tags_are_separated_by_commas(text: str, tags: tuple[str, ...]) -> None:
    assert parse(f"--saved_model_tags={text}").tensorflow.saved_model_tags == tags


@pytest.mark.parametrize(("text", "iterations"), [("-1", 1), ("0", 1), ("1", 1), ("3", 3)])
def test_warmup_runs_each_record_at_least_once(text: str, iterations: int) -> None:
    settings = parse(f"--num_request_iterations_for_warmup={text}")
    assert settings.warmup.num_request_iterations == iterations


@pytest.mark.parametrize("listener", ["auto", "envoy", "portable"])
def test_listeners(listener: str) -> None:
    assert parse(f"--listener={listener}").process.listener == listener


@pytest.mark.parametrize("listener", ["", "Envoy", "uvicorn"])
def test_an_unknown_listener_is_refused(listener: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(f"--listener={listener}")
    assert caught.value.message == (
        f"Couldn't interpret value {listener} for flag listener. "
        "It takes one of auto, envoy, portable."
    )


def test_channel_arguments_are_separated_by_commas() -> None:
    settings = parse("--grpc_channel_arguments=grpc.a=1,grpc.b=c=d,")
    assert settings.listener.grpc_channel_arguments == ("grpc.a=1", "grpc.b=c=d")


@pytest.mark.parametrize("text", ["grpc.a", "grpc.a=", "=1", "grpc.a=1,grpc.b"])
def test_a_channel_argument_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(f"--grpc_channel_arguments={text}")
    assert caught.value.message == (
        f"Couldn't interpret value {text} for flag grpc_channel_arguments."
    )


@pytest.mark.parametrize("precision", ["float16", "BFLOAT16", "on"])
def test_an_unknown_precision_is_refused(precision: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(f"--mixed_precision={precision}")
    assert caught.value.message == (
        f"Couldn't interpret value {precision} for flag mixed_precision. It takes one of bfloat16."
    )
