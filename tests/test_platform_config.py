from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import config_pb2

from aspira.batching.options import BatchingOptions
from aspira.batching.parameters import ParametersFinder
from aspira.contracts.errors import (
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    ServingError,
    Unimplemented,
)
from aspira.platform_config import apply_platform_config
from aspira.runtimes.options import LitertOptions, TensorflowOptions, WarmupOptions
from aspira.runtimes.tensorflow import make_session_config
from aspira.settings import ProcessOptions, Settings

ADAPTER = "type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig"
FLAGS = Settings(
    tensorflow=TensorflowOptions(
        saved_model_tags=("other",), intra_op_parallelism=7, custom_op_libraries=("/ops.so",)
    ),
    litert=LitertOptions(is_preferred=True, num_pools=9),
    warmup=WarmupOptions(num_request_iterations=5, batch_sizes=(4,), is_session_run_refused=True),
)


def entry(config: str, *, platform: str = "tensorflow") -> str:
    return (
        f"platform_configs {{ key: '{platform}' value {{ source_adapter_config {{ {config} }} }} }}"
    )


def bundle(fields: str) -> str:
    return entry(f"[{ADAPTER}] {{ legacy_config {{ {fields} }} }}")


def apply(directory: Path, text: str, *, settings: Settings = FLAGS) -> Settings:
    file = directory / "platform.config"
    file.write_text(text)
    process = ProcessOptions(platform_config_file=str(file))
    return apply_platform_config(replace(settings, process=process))


def test_without_a_file_the_flags_count() -> None:
    assert apply_platform_config(FLAGS) is FLAGS


def test_the_file_replaces_the_originals_flags_and_not_ours(tmp_path: Path) -> None:
    settings = apply(tmp_path, bundle(""))
    assert settings.tensorflow == TensorflowOptions(custom_op_libraries=("/ops.so",))
    # A boolean that is not said is false, warm-up too.
    assert settings.litert == LitertOptions(is_preferred=False, num_pools=1)
    assert settings.warmup == WarmupOptions(
        is_enabled=False, batch_sizes=(4,), is_session_run_refused=True
    )


def test_what_the_file_says(tmp_path: Path) -> None:
    settings = apply(
        tmp_path,
        bundle(
            """
            session_config {
              inter_op_parallelism_threads: 3
              gpu_options { per_process_gpu_memory_fraction: 0.5 }
            }
            saved_model_tags: "serve" saved_model_tags: "gpu"
            enable_model_warmup: true
            model_warmup_options {
              num_request_iterations { value: 0 } num_model_warmup_threads { value: 2 }
            }
            prefer_tflite_model: true
            num_tflite_pools: 4
            num_tflite_interpreters_per_pool: 5
            mixed_precision: "bfloat16"
            """
        ),
    )
    assert settings.tensorflow.saved_model_tags == ("serve", "gpu")
    assert settings.litert == LitertOptions(
        is_preferred=True, num_pools=4, num_interpreters_per_pool=5
    )
    assert settings.warmup.is_enabled
    assert (settings.warmup.num_request_iterations, settings.warmup.num_threads) == (0, 2)
    config = make_session_config(settings.tensorflow)
    assert isinstance(config, config_pb2.ConfigProto)
    assert config.inter_op_parallelism_threads == 3
    assert config.intra_op_parallelism_threads == 0
    assert config.gpu_options.per_process_gpu_memory_fraction == 0.5
    assert config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16
    with tf.compat.v1.Session(config=config, graph=tf.Graph()):
        pass


def packed(type_name: str, value: str = "") -> str:
    return entry(f"type_url: 'type.googleapis.com/{type_name}' value: '{value}'")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", FailedPrecondition, "PlatformConfigMap has no entry for platform tensorflow"),
        (
            entry("[type.googleapis.com/tensorflow.ConfigProto] { placement_period: 3 }"),
            InvalidArgument,
            (
                "Couldn't find factory for config proto message type tensorflow.ConfigProto\n"
                "config=placement_period: 3\n"
            ),
        ),
        (
            packed("tensorflow.serving.NoSuchConfig"),
            Internal,
            ("Unable to find compiled-in proto descriptor of type tensorflow.serving.NoSuchConfig"),
        ),
    ],
)
def test_maps_that_configure_no_saved_models(
    tmp_path: Path, text: str, error: type[ServingError], message: str
) -> None:
    with pytest.raises(error) as caught:
        apply(tmp_path, text)
    assert caught.value.message == message


def test_a_damaged_configuration(tmp_path: Path) -> None:
    text = packed("tensorflow.serving.SavedModelBundleSourceAdapterConfig", "\\377")
    with pytest.raises(InvalidArgument, match="a damaged tensorflow"):
        apply(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "place"),
    [(bundle("no_such_field: 1"), "no_such_field"), ("platform_configs {", "1:18")],
)
def test_a_file_that_does_not_parse(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        apply(tmp_path, text)
    assert caught.value.message.startswith(f"Invalid protobuf file: '{tmp_path}/platform.config'")
    assert "Error parsing text-format tensorflow.serving.PlatformConfigMap" in caught.value.message
    assert place in caught.value.message


def test_a_missing_file() -> None:
    process = ProcessOptions(platform_config_file="/nonexistent")
    with pytest.raises(NotFound, match="/nonexistent; No such file or directory"):
        apply_platform_config(Settings(process=process))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ("session_target: 'grpc://host'", "session_target: sessions run in this process"),
        ("experimental_fixed_input_tensors { name: 'x' }", "experimental_fixed_input_tensors"),
        ("enable_saved_model_config: true", "Saved model config functionality is not implemented."),
    ],
)
def test_what_cannot_be_left_out_is_refused_by_name(
    tmp_path: Path, fields: str, named: str
) -> None:
    with pytest.raises(Unimplemented) as caught:
        apply(tmp_path, bundle(fields))
    assert named in caught.value.message


def test_what_has_no_effect_is_named_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = bundle(
        """
        session_run_load_threadpool_index { value: 1 }
        experimental_transient_ram_bytes_during_load: 1
        in_graph_batching_parameters {}
        enable_session_metadata: true
        resource_estimation_uses_validation_result: true
        num_tflite_interpreters: 1
        num_tflite_interpreters_per_pool: 1
        remove_unused_fields_from_bundle_metagraph: true
        """
    )
    apply(tmp_path, text + entry(f"[{ADAPTER}] {{}}", platform="mine"))
    (line,) = caplog.messages
    assert line == (
        f"{tmp_path}/platform.config: without effect: session_run_load_threadpool_index, "
        "experimental_transient_ram_bytes_during_load, in_graph_batching_parameters, "
        "enable_session_metadata, resource_estimation_uses_validation_result, "
        "num_tflite_interpreters, platform mine"
    )


def test_a_precision_that_is_not_there_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = apply(tmp_path, bundle("mixed_precision: 'float16'"))
    assert settings.tensorflow.mixed_precision == ""
    assert caplog.messages == [
        "float16 auto mixed precision is not supported. Valid option: bfloat16"
    ]


def test_the_session_config_survives_as_text(tmp_path: Path) -> None:
    wanted = config_pb2.ConfigProto()
    wanted.device_count["CPU"] = 2
    wanted.session_inter_op_thread_pool.add(num_threads=2, global_name='a "quoted" pool')
    text = text_format.MessageToString(wanted, as_one_line=True)
    config = make_session_config(apply(tmp_path, bundle(f"session_config {{ {text} }}")).tensorflow)
    wanted.allow_soft_placement = True
    wanted.gpu_options.SetInParent()
    assert config == wanted


def test_batching_is_what_the_file_says(tmp_path: Path) -> None:
    settings = apply(
        tmp_path,
        bundle(
            """
            batching_parameters { max_batch_size { value: 8 } allowed_batch_sizes: [4, 8] }
            enable_per_model_batching_params: true
            model_warmup_options { enable_all_batch_sizes_warmup: true }
            """
        ),
    )
    assert settings.batching.is_enabled
    assert settings.batching.is_per_model
    assert settings.warmup.is_for_all_batch_sizes
    found = ParametersFinder(replace(settings.batching, is_per_model=False)).find(tmp_path)
    assert found is not None
    assert (found.max_batch_size, found.allowed_batch_sizes) == (8, (4, 8))


@pytest.mark.parametrize(
    "fields", ["", "batching_parameters {} wrap_session_with_no_threading_params: true"]
)
def test_flags_do_not_turn_batching_on_where_the_file_does_not(tmp_path: Path, fields: str) -> None:
    flags = replace(FLAGS, batching=BatchingOptions(is_enabled=True, parameters_file="/file"))
    settings = apply(tmp_path, bundle(fields), settings=flags)
    assert ParametersFinder(settings.batching).find(tmp_path) is None
