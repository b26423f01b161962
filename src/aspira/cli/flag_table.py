"""Every flag of a server, in TensorFlow Serving's order, then ours."""

from collections.abc import Callable
from typing import TypeVar

from aspira.batching.options import BatchingMode
from aspira.cli.flags import Flag, UnfitValue
from aspira.compat import BETTER, STRICT
from aspira.frontends.listeners.channel_arguments import split_channel_arguments
from aspira.runtimes.accelerator_options import ACCELERATORS, PRECISIONS
from aspira.settings import ListenerKind

AnyNumber = TypeVar("AnyNumber", int, float)

_MICROS = 1e-6
_MILLIS = 1e-3


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _split_sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(int(item) for item in _split_list(text))
    if any(size < 1 for size in sizes):
        raise UnfitValue("It takes numbers of at least 1, separated by commas.")
    return sizes


def _choose(*choices: str) -> Callable[[str], str]:
    def choose(text: str) -> str:
        if text not in choices:
            raise UnfitValue(f"It takes one of {', '.join(filter(None, choices))}.")
        return text

    return choose


def _not_negative(value: AnyNumber) -> AnyNumber:
    if value < 0:
        raise UnfitValue("It cannot be less than 0.")
    return value


def server_flags(*, default_rest_port: int) -> tuple[Flag, ...]:
    """The table. The REST port is the one default on which the two commands differ."""
    return (*_network_flags(default_rest_port), *_model_flags(), *_runtime_flags(), *_own_flags())


def _network_flags(default_rest_port: int) -> tuple[Flag, ...]:
    return (
        Flag("port", "listener.grpc_port", 8500, "TCP port to listen on for gRPC. 0 disables it."),
        Flag("grpc_socket_path", "listener.grpc_socket_path", "",
             "If non-empty, also listen for gRPC on this UNIX socket."),
        Flag("rest_api_port", "listener.rest_port", default_rest_port,
             "TCP port to listen on for HTTP/REST. 0 disables it."),
        Flag("rest_api_timeout_in_ms", "rest.timeout_s", 30000,
             "Timeout of each REST request in milliseconds. 0 or less means none.",
             lambda value: value * _MILLIS),
        Flag("rest_api_enable_cors_support", "rest.is_cors_enabled", default=False,
             help="Add CORS headers to REST answers."),
        Flag("enable_grpc_healthcheck_service", "grpc.is_health_enabled", default=True,
             help="Serve grpc.health.v1.Health, which reflects the models' states."),
        Flag("enable_serialization_as_tensor_content", "grpc.use_tensor_content", default=False,
             help="Encode gRPC outputs as tensor_content."),
        Flag("monitoring_config_file", "process.monitoring_config_file", "",
             "A text MonitoringConfig: whether and where metrics are served on the REST port."),
        Flag("ssl_config_file", "listener.ssl_config_file", "",
             "A text SSLConfig: key and certificates with which gRPC and REST are encrypted."),
        Flag("enable_profiler", "grpc.is_profiler_enabled", default=True,
             help="Serve tensorflow.ProfilerService, from which TensorBoard captures profiles."),
        Flag("use_alts_credentials", "listener.use_alts", default=False,
             help="Google's ALTS in place of TLS. Refused: use ssl_config_file."),
        Flag("grpc_channel_arguments", "listener.grpc_channel_arguments", "",
             "Comma-separated name=value pairs for gRPC's server.", split_channel_arguments),
    )  # fmt: skip


def _model_flags() -> tuple[Flag, ...]:
    return (
        Flag("allow_version_labels_for_unavailable_models", "models.allow_labels_for_unavailable",
             default=False,
             help="A label not in use yet may be assigned to a version that is not available."),
        Flag("model_config_file", "models.config_file", "",
             "A text ModelServerConfig. If set, model_name and model_base_path are ignored."),
        Flag("model_config_file_poll_wait_seconds", "models.config_poll_interval_s", 0,
             "Seconds between looks at the config file for a change. 0 or less means never."),
        Flag("model_name", "models.name", "default", "Name of the model, without a config file."),
        Flag("model_base_path", "models.base_path", "",
             "Directory of the model, holding numeric version directories."),
        Flag("num_load_threads", "lifecycle.num_load_threads", 0,
             "Versions that may load at once. 0 means one per CPU."),
        Flag("num_unload_threads", "lifecycle.num_unload_threads", 0,
             "Versions that may unload at once. 0 means one."),
        Flag("max_num_load_retries", "lifecycle.max_num_load_retries", 5,
             "Further tries after a failed load."),
        Flag("load_retry_interval_micros", "lifecycle.load_retry_interval_s", 60_000_000,
             "Wait between tries in microseconds. Negative means none.",
             lambda value: value * _MICROS),
        Flag("file_system_poll_wait_seconds", "lifecycle.poll_interval_s", 1,
             "Seconds between looks for new versions. 0 or less looks at start and on reload."),
    )  # fmt: skip


def _runtime_flags() -> tuple[Flag, ...]:
    return (
        Flag("enable_batching", "batching.is_enabled", default=False,
             help="Merge requests into batches."),
        Flag("batching_parameters_file", "batching.parameters_file", "",
             "A text BatchingParameters. Needs batching to be enabled."),
        Flag("enable_per_model_batching_parameters", "batching.is_per_model", default=False,
             help="Batch each version as its batching_params.pbtxt says, or not at all."),
        Flag("tensorflow_session_parallelism", "tensorflow.session_parallelism", 0,
             "Threads of a session, within and across ops. 0 means automatic."),
        Flag("tensorflow_session_config_file", "tensorflow.session_config_file", "",
             "A text tensorflow.ConfigProto to start sessions with."),
        Flag("tensorflow_intra_op_parallelism", "tensorflow.intra_op_parallelism", 0,
             "Threads within an op. 0 means automatic."),
        Flag("tensorflow_inter_op_parallelism", "tensorflow.inter_op_parallelism", 0,
             "Threads across ops. 0 means automatic."),
        Flag("platform_config_file", "process.platform_config_file", "",
             "A text PlatformConfigMap. If set, TensorFlow Serving's flags about sessions,"
             " batching, TFLite and warm-up are ignored."),
        Flag("per_process_gpu_memory_fraction", "tensorflow.gpu_memory_fraction", 0.0,
             "Share of GPU memory to take. 0 means TensorFlow's default."),
        Flag("prefer_tflite_model", "litert.is_preferred", default=False,
             help="Serve model.tflite of a version directory where there is one."),
        Flag("num_tflite_pools", "litert.num_pools", 0,
             "Interpreters of a TFLite model. 0 means one per CPU."),
        Flag("num_tflite_interpreters_per_pool", "litert.num_interpreters_per_pool", 1,
             "More than 1 batches the requests of TFLite models: this many runs make up the "
             "largest request."),
        Flag("saved_model_tags", "tensorflow.saved_model_tags", "serve",
             "Comma-separated tags of the MetaGraph to load.", _split_list),
        Flag("mixed_precision", "tensorflow.mixed_precision", "",
             "bfloat16 lets TensorFlow compute in it where that is safe.", _choose("", "bfloat16")),
        Flag("enable_model_warmup", "warmup.is_enabled", default=True,
             help="Replay a model's warm-up records before it serves."),
        Flag("num_request_iterations_for_warmup", "warmup.num_request_iterations", 0,
             "Runs of each warm-up record. 0 means one.", lambda value: max(value, 1)),
        Flag("enable_signature_method_name_check", "service.is_method_name_checked", default=False,
             help="Ask a signature only by the API that its method_name is for."),
    )  # fmt: skip


def _own_flags() -> tuple[Flag, ...]:
    return (
        *_accelerator_flags(),
        Flag("host", "listener.host", "",
             "Address to listen on. Empty means all interfaces."),
        Flag("admin_port", "admin.port", 0,
             "TCP port for health, metrics, models, reload and warm-up recording. 0 disables it."),
        Flag("admin_host", "admin.host", "",
             "Address to listen on for admin_port. Empty means that of the other ports."),
        Flag("listener", "process.listener", "auto",
             "envoy, portable, or auto: envoy where it can run.",
             _choose(*(kind.value for kind in ListenerKind))),
        Flag("compat", "process.compat", BETTER,
             "strict brings back what TensorFlow Serving does where this server does better; "
             "docs/compatibility.md lists it. Flags given beside it win.", _choose(BETTER, STRICT)),
        Flag("version_ready_marker", "lifecycle.ready_marker", "",
             "Name of a file in each version directory that says it is complete. Empty: a "
             "directory is complete once its files do not change any longer."),
        Flag("shutdown_grace_seconds", "process.shutdown_grace_s", 25.0,
             "How long requests in flight may go on after SIGTERM, SIGINT or SIGHUP.",
             _not_negative),
        Flag("custom_op_libraries", "tensorflow.custom_op_libraries", "",
             "Comma-separated paths of shared libraries with TensorFlow ops that models need.",
             _split_list),
        Flag("warmup_batch_sizes", "warmup.batch_sizes", "",
             "Comma-separated numbers of rows. Each warm-up record is also run with its inputs"
             " repeated or cut to each of them.", _split_sizes),
        Flag("enable_all_batch_sizes_warmup", "warmup.is_for_all_batch_sizes", default=False,
             help="The same with every size that a batch may have; needs batching."),
        Flag("num_run_threads", "batching.num_threads", 0,
             "Runs of one model version that may go on at once. 0 means as many as the batching "
             "parameters say, or one per CPU."),
        Flag("batching", "batching.mode", "off",
             "off, on (as enable_batching), or auto: batches as large as latency_target_ms allows.",
             _choose(*(mode.value for mode in BatchingMode))),
        Flag("latency_target_ms", "batching.latency_target_s", 0.0,
             "With --batching=auto: what 99 of 100 requests shall not exceed. 0 means no target.",
             lambda value: value * _MILLIS),
        Flag("max_queued_requests", "batching.max_queued_requests", 10_000,
             "Requests of one model version that may wait when they are not batched."),
        Flag("max_queued_bytes", "batching.max_queued_bytes", 2**30,
             "Bytes of inputs of one model version that may wait."),
        Flag("kv_cache_budget_mib", "language_models.cache_budget_mib", 4096,
             "Memory for the KV caches of all language models together, in MiB. 0 is no limit."),
        Flag("stream_drain_seconds", "language_models.stream_drain_s", 60.0,
             "How long streams of a language model's replaced version may go on."),
        Flag("stream_keep_alive_seconds", "language_models.keep_alive_s", 10.0,
             "Silence in a token stream after which a comment shows that it goes on. 0 is never."),
    )  # fmt: skip


def _accelerator_flags() -> tuple[Flag, ...]:
    return (
        Flag("accelerator", "accelerator.kind", "tensorflow",
             "What serves SavedModels: tensorflow; auto: per signature OpenVINO (CPU) where its "
             "answers agree and it is faster; openvino, xla: these wherever answers agree.",
             _choose(*ACCELERATORS)),
        Flag("precision", "accelerator.precision", "f32",
             "What OpenVINO computes in: f32, bf16, or int8 calibrated with recorded requests.",
             _choose(*PRECISIONS)),
        Flag("calibration_file", "accelerator.calibration_file", "",
             "PredictionLog records for int8. Empty means each version's own warm-up file."),
        Flag("accelerator_batch_sizes", "accelerator.batch_sizes", "1,2,4,8,16",
             "Batch sizes to compile for before a version is published, unless its batching names "
             "allowed ones; XLA fills up to them, and leaves larger batches to TensorFlow.",
             _split_sizes),
        Flag("openvino_num_streams", "accelerator.num_streams", 0,
             "Runs of a signature that OpenVINO does at once, sharing the CPUs. 0 means one.",
             _not_negative),
        Flag("compile_cache_dir", "accelerator.cache_dir", "",
             "Where compiled models are kept. Empty means aspira/compiled in the user's cache."),
        Flag("compile_cache_max_megabytes", "accelerator.cache_max_bytes", 4096,
             "Size of what is kept there; the oldest goes first. 0 keeps nothing.",
             lambda megabytes: _not_negative(megabytes) << 20),
    )  # fmt: skip
