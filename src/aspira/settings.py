"""The settings tree: one options class per owner, and the checks that span owners."""

import dataclasses
import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, get_type_hints

from aspira.batching.options import BatchingOptions
from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.frontends.admin.options import AdminOptions
from aspira.frontends.grpc.options import GrpcOptions
from aspira.frontends.listeners.options import ListenerOptions
from aspira.frontends.rest.options import RestOptions
from aspira.lifecycle.options import LifecycleOptions
from aspira.llm.serving_options import LanguageModelOptions
from aspira.runtimes.accelerator_options import AcceleratorOptions, check_accelerator
from aspira.runtimes.options import LitertOptions, TensorflowOptions, WarmupOptions
from aspira.service.options import ServiceOptions

DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"

_LAST_PORT = 2**16 - 1


class ListenerKind(Enum):
    """Which listener carries the protocols."""

    AUTO = "auto"
    ENVOY = "envoy"
    PORTABLE = "portable"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which models to serve: a config file, or one model by name and path."""

    name: str = "default"
    """Name of the single model."""

    base_path: str = ""
    """Directory of the single model, without the version."""

    config_file: str = ""
    """A text ModelServerConfig; wins over name and path."""

    config_poll_interval_s: float = 0.0
    """Seconds between looks at the file for a change; 0 or less means none."""

    allow_labels_for_unavailable: bool = False
    """A label not in use yet may name a version that is not available."""

    is_unchanged_config_applied: bool = False
    """Apply the file at each look, which undoes what a reload by RPC has set."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How the process runs and ends."""

    listener: str = ListenerKind.AUTO.value
    """envoy, portable, or auto: envoy where it can run."""

    shutdown_grace_s: float = 25.0
    """How long requests in flight may go on after the first signal."""

    is_drained: bool = True
    """Finish requests in flight at the first signal."""

    compat: str = "better"
    """better, or strict: then all the settings of `aspira.compat` were set."""

    monitoring_config_file: str = ""
    """A text MonitoringConfig; says whether and where metrics are served."""

    platform_config_file: str = ""
    """A text PlatformConfigMap, in place of flags about sessions, batching, TFLite and warm-up."""

    is_metrics_default: bool = True
    """Serve metrics at the default path when there is no monitoring file."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a server is told at its start."""

    models: ModelOptions = field(default_factory=ModelOptions)
    lifecycle: LifecycleOptions = field(default_factory=LifecycleOptions)
    tensorflow: TensorflowOptions = field(default_factory=TensorflowOptions)
    accelerator: AcceleratorOptions = field(default_factory=AcceleratorOptions)
    litert: LitertOptions = field(default_factory=LitertOptions)
    warmup: WarmupOptions = field(default_factory=WarmupOptions)
    batching: BatchingOptions = field(default_factory=BatchingOptions)
    language_models: LanguageModelOptions = field(default_factory=LanguageModelOptions)
    service: ServiceOptions = field(default_factory=ServiceOptions)
    listener: ListenerOptions = field(default_factory=ListenerOptions)
    grpc: GrpcOptions = field(default_factory=GrpcOptions)
    rest: RestOptions = field(default_factory=RestOptions)
    admin: AdminOptions = field(default_factory=AdminOptions)
    process: ProcessOptions = field(default_factory=ProcessOptions)


def check_settings(settings: Settings) -> None:
    """Refuse what contradicts itself, before anything starts.

    Raises:
        InvalidArgument: the texts are TensorFlow Serving's where it has one.
        Unimplemented: what cannot be left out and is not there.
        FailedPrecondition: what was asked for needs a package that is not installed.
    """
    listener, models, tensorflow = settings.listener, settings.models, settings.tensorflow
    if not listener.grpc_port and not listener.grpc_socket_path:
        raise InvalidArgument(
            "At least one of server_options.grpc_port or server_options.grpc_socket_path "
            "must be set."
        )
    _check_ports(listener, admin_port=settings.admin.port)
    if not models.base_path and not models.config_file:
        raise InvalidArgument(
            "Both server_options.model_base_path and server_options.model_config_file are empty!"
        )
    if (
        min(
            tensorflow.session_parallelism,
            tensorflow.intra_op_parallelism,
            tensorflow.inter_op_parallelism,
        )
        > 0
    ):
        raise InvalidArgument(
            "Either configure server_options.tensorflow_session_parallelism or "
            "(server_options.tensorflow_intra_op_parallelism, "
            "server_options.tensorflow_inter_op_parallelism) separately. You cannot configure all."
        )
    if "/" in settings.lifecycle.ready_marker:
        raise InvalidArgument(
            f"--version_ready_marker is {settings.lifecycle.ready_marker}; it is the name of a "
            "file in each version directory, without a path"
        )
    _check_counts(settings)
    _check_batching(settings.batching)
    if settings.warmup.is_for_all_batch_sizes and not settings.batching.is_on:
        raise InvalidArgument(
            "--enable_all_batch_sizes_warmup needs --enable_batching, which says what sizes there"
            " are; without it --warmup_batch_sizes names them"
        )
    _check_credentials(listener)
    check_accelerator(settings.accelerator)


def _check_ports(listener: ListenerOptions, *, admin_port: int) -> None:
    ports = {
        "port": listener.grpc_port,
        "rest_api_port": listener.rest_port,
        "admin_port": admin_port,
    }
    for flag, port in ports.items():
        if not 0 <= port <= _LAST_PORT:
            raise InvalidArgument(f"--{flag} is {port}; ports are 1 to {_LAST_PORT}, and 0 is none")
    if listener.grpc_port and listener.grpc_port == listener.rest_port:
        raise InvalidArgument(
            f"--port and --rest_api_port are both {listener.grpc_port}; every port accepts both "
            "protocols, so set --rest_api_port=0 to use one port"
        )
    if admin_port and admin_port in listener.ports:
        raise InvalidArgument(
            f"--admin_port is {admin_port}, as another port is; it needs one of its own, "
            "which is open before models are loaded"
        )


def _check_credentials(listener: ListenerOptions) -> None:
    if listener.use_alts and listener.ssl_config_file:
        raise InvalidArgument(
            "Either use_alts_credentials must be false or ssl_config_file must be empty."
        )
    if listener.use_alts:
        # Never served without: somebody relies on the encryption.
        raise Unimplemented("--use_alts_credentials is not supported; use --ssl_config_file")


def _check_batching(batching: BatchingOptions) -> None:
    if batching.parameters_file and not batching.is_on:
        raise InvalidArgument(
            "server_options.batching_parameters_file is set without setting "
            "server_options.enable_batching to true."
        )
    if batching.is_per_model and not batching.is_on:
        raise InvalidArgument(
            "--enable_per_model_batching_parameters does nothing without --enable_batching"
        )
    if batching.latency_target_s and not batching.is_learned:
        raise InvalidArgument("--latency_target_ms needs --batching=auto")
    if batching.latency_target_s < 0:
        raise InvalidArgument("--latency_target_ms cannot be less than 0")


def _check_counts(settings: Settings) -> None:
    """A pool of less than no threads would serve nobody, or never start."""
    counts = {
        "num_load_threads": settings.lifecycle.num_load_threads,
        "num_unload_threads": settings.lifecycle.num_unload_threads,
        "num_run_threads": settings.batching.num_threads,
        "max_queued_requests": settings.batching.max_queued_requests,
        "max_queued_bytes": settings.batching.max_queued_bytes,
        "kv_cache_budget_mib": settings.language_models.cache_budget_mib,
    }
    for flag, count in counts.items():
        if count < 0:
            raise InvalidArgument(f"--{flag} is {count}; it cannot be less than 0")


def encode_settings(settings: Settings) -> str:
    """As one line of JSON, to hand to a child process."""
    return json.dumps(dataclasses.asdict(settings))


def decode_settings(text: str) -> Settings:
    """What `encode_settings` wrote."""
    groups = json.loads(text)
    return Settings(
        **{
            name: options_class(**_decode_fields(groups[name]))
            for name, options_class in get_type_hints(Settings).items()
        }
    )


def _decode_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
