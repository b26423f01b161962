import pytest

from aspira.cli.flag_table import server_flags
from aspira.cli.flags import FlagValue, flag_kind
from aspira.cli.foreign_flags import (
    FOREIGN_FLAGS,
    ForeignArguments,
    ForeignFlag,
    Support,
    take_foreign_flags,
)
from aspira.contracts.errors import InvalidArgument

# Of TensorFlow Serving 2.20.
FLAG_NAMES = """
    port grpc_socket_path rest_api_port rest_api_num_threads rest_api_timeout_in_ms
    rest_api_enable_cors_support enable_batching allow_version_labels_for_unavailable_models
    batching_parameters_file enable_per_model_batching_parameters model_config_file
    model_config_file_poll_wait_seconds model_name model_base_path num_load_threads
    num_unload_threads max_num_load_retries load_retry_interval_micros
    file_system_poll_wait_seconds flush_filesystem_caches tensorflow_session_parallelism
    tensorflow_session_config_file tensorflow_intra_op_parallelism
    tensorflow_inter_op_parallelism use_alts_credentials ssl_config_file platform_config_file
    per_process_gpu_memory_fraction saved_model_tags grpc_channel_arguments grpc_max_threads
    enable_model_warmup num_request_iterations_for_warmup version monitoring_config_file
    remove_unused_fields_from_bundle_metagraph prefer_tflite_model num_tflite_pools
    num_tflite_interpreters_per_pool enable_signature_method_name_check
    xla_cpu_compilation_enabled xla_gpu_compilation_enabled enable_profiler
    thread_pool_factory_config_file mixed_precision skip_initialize_tpu
    enable_grpc_healthcheck_service enable_serialization_as_tensor_content
"""
TENSORFLOW_SERVING_FLAGS = frozenset(FLAG_NAMES.split())
# Parsed by the commands themselves.
COMMAND_FLAGS = {"version"}
# All others are bools.
KINDS = {
    "num_tflite_interpreters_per_pool": "int64",
    "rest_api_num_threads": "int64",
    "grpc_max_threads": "int64",
    "batching_parameters_file": "string",
    "thread_pool_factory_config_file": "string",
}


def flag_named(name: str) -> ForeignFlag:
    (flag,) = [flag for flag in FOREIGN_FLAGS if flag.name == name]
    return flag


def other_value(flag: ForeignFlag) -> str:
    others: dict[type[FlagValue], str] = {
        bool: str(not flag.default).lower(),
        int: "7",
        str: "/some/file",
    }
    return others[type(flag.default)]


def test_every_flag_of_the_original_is_known() -> None:
    known = {flag.name for flag in (*server_flags(default_rest_port=0), *FOREIGN_FLAGS)}
    assert TENSORFLOW_SERVING_FLAGS - known - COMMAND_FLAGS == set()


def test_a_foreign_flag_is_the_originals_and_not_one_of_ours() -> None:
    names = [flag.name for flag in FOREIGN_FLAGS]
    assert len(set(names)) == len(names)
    assert set(names) <= TENSORFLOW_SERVING_FLAGS
    assert not set(names) & {flag.name for flag in server_flags(default_rest_port=0)}


def test_kinds_are_the_originals() -> None:
    assert {flag.name: flag_kind(flag) for flag in FOREIGN_FLAGS} == {
        flag.name: KINDS.get(flag.name, "bool") for flag in FOREIGN_FLAGS
    }


@pytest.mark.parametrize("flag", FOREIGN_FLAGS, ids=lambda flag: flag.name)
def test_a_reason_is_one_line_and_help_ends_it(flag: ForeignFlag) -> None:
    assert flag.reason
    assert "\n" not in flag.reason
    assert not flag.reason.endswith(".")
    assert flag.help == f"{flag.support.value}: {flag.reason}."


@pytest.mark.parametrize("flag", FOREIGN_FLAGS, ids=lambda flag: flag.name)
def test_a_flag_is_told_unless_it_asks_for_nothing(flag: ForeignFlag) -> None:
    default = str(flag.default).lower()
    assert take_foreign_flags([f"--{flag.name}={default}"]) == ForeignArguments((), ())
    asked = take_foreign_flags([f"--{flag.name}={other_value(flag)}"])
    assert asked == ForeignArguments((flag,), ())


def test_the_last_value_counts_and_a_flag_is_told_once() -> None:
    flag = flag_named("xla_cpu_compilation_enabled")
    asked = take_foreign_flags([f"--{flag.name}", f"--{flag.name}=true"])
    assert asked.flags == (flag,)
    assert take_foreign_flags([f"--{flag.name}", f"--{flag.name}=false"]).flags == ()


def test_kinds_of_support_are_told_apart() -> None:
    asked = take_foreign_flags(["--grpc_max_threads=8", "--thread_pool_factory_config_file=/x"])
    assert asked.without_effect == (flag_named("grpc_max_threads"),)
    assert asked.unsupported == (flag_named("thread_pool_factory_config_file"),)
    assert {flag.support for flag in FOREIGN_FLAGS} == set(Support)


def test_other_arguments_are_left_in_order() -> None:
    arguments = [
        "--help",
        "--skip_initialize_tpu",
        "x",
        "--grpc_max_threads",
        "--",
        "--enable_profiler",
    ]
    asked = take_foreign_flags(arguments)
    assert asked.flags == (flag_named("skip_initialize_tpu"),)
    assert asked.unknown == ("--help", "x", "--grpc_max_threads", "--", "--enable_profiler")


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        take_foreign_flags(["--skip_initialize_tpu=maybe"])
    assert caught.value.message == "Couldn't interpret value maybe for flag skip_initialize_tpu."
