"""`tensorflow.serving.PlatformConfigMap`: how the models of a platform are opened and run."""

from typing import Any

from aspira.contracts.errors import FailedPrecondition, Internal, InvalidArgument
from aspira.wire.batching_parameters import BATCHING_PARAMETERS_FIELDS
from aspira.wire.message_fields import MessageField, make_message

# Message classes are generated at run time, hence Any.
Message = Any

_ADAPTER = "SavedModelBundleSourceAdapterConfig"
_INT32 = "google.protobuf.Int32Value"
_WARMUP_FIELDS = (
    MessageField("num_request_iterations", 1, _INT32),
    MessageField("num_model_warmup_threads", 2, _INT32),
    MessageField("model_name", 3, "string"),
    MessageField("model_version", 4, "int64"),
    MessageField("enable_all_batch_sizes_warmup", 5, "bool"),
)
_BUNDLE_FIELDS = (
    MessageField("session_target", 1, "string"),
    MessageField("session_config", 2, "tensorflow.ConfigProto"),
    MessageField("batching_parameters", 3, "BatchingParameters"),
    MessageField("session_run_load_threadpool_index", 4, _INT32),
    MessageField("experimental_transient_ram_bytes_during_load", 5, "uint64"),
    MessageField("saved_model_tags", 6, "string", is_repeated=True),
    MessageField("in_graph_batching_parameters", 7, "BatchingOptions"),
    MessageField(
        "experimental_fixed_input_tensors", 778, "tensorflow.NamedTensorProto", is_repeated=True
    ),
    MessageField("enable_model_warmup", 779, "bool"),
    MessageField("model_warmup_options", 780, "ModelWarmupOptions"),
    MessageField("enable_session_metadata", 781, "bool"),
    MessageField("remove_unused_fields_from_bundle_metagraph", 782, "bool"),
    MessageField("prefer_tflite_model", 783, "bool"),
    MessageField("resource_estimation_uses_validation_result", 784, "bool"),
    MessageField("num_tflite_interpreters", 785, "int32"),
    MessageField("num_tflite_interpreters_per_pool", 786, "int32"),
    MessageField("num_tflite_pools", 787, "int32"),
    MessageField("wrap_session_with_no_threading_params", 788, "bool"),
    MessageField("enable_per_model_batching_params", 789, "bool"),
    MessageField("enable_saved_model_config", 790, "bool"),
    MessageField("mixed_precision", 791, "string"),
)


def make_platform_config_map() -> Message:
    """An empty message, whose text may hold the configuration of a SavedModel adapter."""
    from tensorflow.core.protobuf import config_pb2, named_tensor_pb2
    from tensorflow_serving.config import platform_config_pb2

    return make_message(
        "PlatformConfigMap",
        messages={
            "BatchingParameters": BATCHING_PARAMETERS_FIELDS,
            # Its fields configure batching within a graph, which only other runtimes do.
            "BatchingOptions": (),
            "ModelWarmupOptions": _WARMUP_FIELDS,
            "SessionBundleConfig": _BUNDLE_FIELDS,
            _ADAPTER: (MessageField("legacy_config", 1000, "SessionBundleConfig"),),
        },
        dependencies=(
            config_pb2.DESCRIPTOR,
            named_tensor_pb2.DESCRIPTOR,
            platform_config_pb2.DESCRIPTOR,
        ),
    )


def find_session_bundle_config(platforms: Message, *, platform: str) -> Message:
    """The SessionBundleConfig of a platform.

    Raises:
        FailedPrecondition: the map has no such platform.
        Internal: its configuration is of a type that nobody knows.
        InvalidArgument: it is of another type than a SavedModel adapter's, or damaged.
    """
    if platform not in platforms.platform_configs:
        raise FailedPrecondition(f"PlatformConfigMap has no entry for platform {platform}")
    config = _unpack(platforms.platform_configs[platform].source_adapter_config)
    if config.DESCRIPTOR.name != _ADAPTER:
        raise InvalidArgument(
            "Couldn't find factory for config proto message type"
            f" {config.DESCRIPTOR.full_name}\nconfig={config}"
        )
    return config.legacy_config


def _unpack(packed: Message) -> Message:
    from google.protobuf import message, message_factory

    type_name = packed.type_url.rpartition("/")[2]
    try:
        descriptor = packed.DESCRIPTOR.file.pool.FindMessageTypeByName(type_name)
    except KeyError:
        raise Internal(f"Unable to find compiled-in proto descriptor of type {type_name}") from None
    try:
        return message_factory.GetMessageClass(descriptor).FromString(packed.value)
    except message.DecodeError as error:
        raise InvalidArgument(f"PlatformConfigMap: a damaged {type_name}: {error}") from error
