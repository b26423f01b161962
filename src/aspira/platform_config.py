"""`--platform_config_file`: one file in place of flags about sessions, batches, TFLite, warm-up."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from google.protobuf import text_format

from aspira.batching.options import BatchingOptions
from aspira.contracts.errors import Unimplemented
from aspira.runtimes.options import LitertOptions, TensorflowOptions, WarmupOptions
from aspira.settings import Settings
from aspira.wire.platform_config import find_session_bundle_config, make_platform_config_map
from aspira.wire.text_format import parse_text_file

_PLATFORM = "tensorflow"
_BFLOAT16 = "bfloat16"

# Serving on without these would give other answers, or none.
_REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "session_target": "sessions run in this process",
        "experimental_fixed_input_tensors": "every input comes from the request",
        "enable_saved_model_config": "Saved model config functionality is not implemented.",
    }
)
_IGNORED = (
    "session_run_load_threadpool_index",
    "experimental_transient_ram_bytes_during_load",
    "in_graph_batching_parameters",
    "enable_session_metadata",
    "resource_estimation_uses_validation_result",
    "num_tflite_interpreters",
)

# Message classes are generated at run time, hence Any.
Message = Any

_logger = logging.getLogger(__name__)


def apply_platform_config(settings: Settings) -> Settings:
    """The settings with those of the file in place of the flags that it replaces, if there is one.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: it does not parse, or configures something else than SavedModels.
        FailedPrecondition: it says nothing of the platform `tensorflow`.
        Unimplemented: it asks for what is not there and cannot be left out.
    """
    file = settings.process.platform_config_file
    if not file:
        return settings
    platforms = make_platform_config_map()
    parse_text_file(Path(file), into=platforms)
    config = find_session_bundle_config(platforms, platform=_PLATFORM)
    _refuse_unsupported(config, file=file)
    _report_ignored(config, platforms=platforms, file=file)
    return replace(
        settings,
        tensorflow=_decode_tensorflow(config, flags=settings.tensorflow),
        litert=LitertOptions(
            config.prefer_tflite_model,
            max(config.num_tflite_pools, 1),
            max(config.num_tflite_interpreters_per_pool, 1),
        ),
        warmup=_decode_warmup(config, flags=settings.warmup),
        batching=_decode_batching(config, flags=settings.batching),
    )


def _decode_tensorflow(config: Message, *, flags: TensorflowOptions) -> TensorflowOptions:
    precision = config.mixed_precision
    if precision not in {"", _BFLOAT16}:
        _logger.warning(
            "%s auto mixed precision is not supported. Valid option: bfloat16", precision
        )
    return TensorflowOptions(
        saved_model_tags=tuple(config.saved_model_tags) or TensorflowOptions().saved_model_tags,
        session_config=text_format.MessageToString(config.session_config),
        gpu_memory_fraction=config.session_config.gpu_options.per_process_gpu_memory_fraction,
        custom_op_libraries=flags.custom_op_libraries,
        mixed_precision=_BFLOAT16 if precision == _BFLOAT16 else "",
    )


def _decode_warmup(config: Message, *, flags: WarmupOptions) -> WarmupOptions:
    options = config.model_warmup_options
    is_said = options.HasField("num_request_iterations")
    return replace(
        flags,
        is_enabled=config.enable_model_warmup,
        num_request_iterations=options.num_request_iterations.value if is_said else 1,
        num_threads=max(options.num_model_warmup_threads.value, 1),
        is_for_all_batch_sizes=options.enable_all_batch_sizes_warmup,
    )


def _decode_batching(config: Message, *, flags: BatchingOptions) -> BatchingOptions:
    is_enabled = (
        config.HasField("batching_parameters") and not config.wrap_session_with_no_threading_params
    )
    return replace(
        flags,
        is_enabled=is_enabled,
        parameters_file="",
        parameters=text_format.MessageToString(config.batching_parameters) if is_enabled else "",
        is_per_model=config.enable_per_model_batching_params,
    )


def _refuse_unsupported(config: Message, *, file: str) -> None:
    said = {field.name for field, _ in config.ListFields()}
    for name, reason in _REFUSED.items():
        if name in said:
            raise Unimplemented(f"{file}: {name}: {reason}")


def _report_ignored(config: Message, *, platforms: Message, file: str) -> None:
    said = {field.name for field, _ in config.ListFields()}
    ignored = [name for name in _IGNORED if name in said]
    ignored += [f"platform {name}" for name in platforms.platform_configs if name != _PLATFORM]
    if ignored:
        _logger.warning("%s: without effect: %s", file, ", ".join(ignored))
