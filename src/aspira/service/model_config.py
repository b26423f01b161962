"""The model config file: which models there are, where, which versions, which labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.contracts.identity import ModelName, Version, VersionLabel
from aspira.lifecycle.listing import MonitoredModel
from aspira.lifecycle.version_choice import All, Latest, Specific, VersionPolicy
from aspira.routing.table import Labels
from aspira.wire.text_format import parse_json, parse_text

TENSORFLOW_PLATFORM = "tensorflow"
"""Also of versions of other frameworks, which their directories tell."""

LANGUAGE_MODEL_PLATFORM = "language_model"
"""Ours: only versions that are language models load."""

# Message classes are generated at TensorFlow's import, hence Any.
Message = Any


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One entry of the list."""

    model: MonitoredModel
    platform: str = TENSORFLOW_PLATFORM
    labels: Labels = field(default_factory=dict)


ModelConfigs = Mapping[ModelName, ModelConfig]


def parse_model_config_text(text: str, *, origin: str) -> Message:
    """The ModelServerConfig that a file holds; `origin` names it in errors.

    Raises:
        InvalidArgument: it does not parse.
    """
    from tensorflow_serving.config import model_server_config_pb2

    message = model_server_config_pb2.ModelServerConfig()
    parse_text(text, into=message, origin=origin)
    return message


def parse_model_configs(text: str, *, origin: str) -> ModelConfigs:
    """The models that a ModelServerConfig lists, in text format or, from its first `{` on, JSON.

    Raises:
        InvalidArgument: it does not parse, or an entry is wrong.
        FailedPrecondition: it lists no models, not even none.
    """
    if text.lstrip().startswith("{"):
        from tensorflow_serving.config import model_server_config_pb2

        message = model_server_config_pb2.ModelServerConfig()
        parse_json(text, into=message, origin=origin)
    else:
        message = parse_model_config_text(text, origin=origin)
    configs = decode_model_configs(message)
    if configs is None:
        raise cannot_transition()
    return configs


def decode_model_configs(message: Message) -> ModelConfigs | None:
    """The models of a ModelServerConfig message; None where it says nothing at all.

    Raises:
        InvalidArgument: an entry is wrong; the texts are TensorFlow Serving's.
    """
    kind = message.WhichOneof("config")
    if kind is None:
        return None
    if kind != "model_config_list":
        raise InvalidArgument("ModelServer does not yet support custom model config.")
    configs: dict[ModelName, ModelConfig] = {}
    for entry in message.model_config_list.config:
        if entry.name in configs:
            raise InvalidArgument(
                f"Illegal to list model {entry.name} multiple times in config list"
            )
        configs[ModelName(entry.name)] = _decode_entry(entry)
    return configs


def single_model_configs(model: MonitoredModel) -> ModelConfigs:
    """The configuration of `--model_name` and `--model_base_path`."""
    _check_base_path(model.name, base_path=model.base_path)
    return {model.name: ModelConfig(model)}


def check_transition(before: ModelConfigs, *, after: ModelConfigs) -> None:
    """Refuse what a reload may not change.

    Raises:
        InvalidArgument: a model's platform would change.
    """
    for name in before.keys() & after.keys():
        if before[name].platform != after[name].platform:
            raise InvalidArgument(
                f"Illegal to change a model's platform. For model {name} platform was "
                f"{before[name].platform} and new platform requested is {after[name].platform}"
            )


def cannot_transition() -> FailedPrecondition:
    """The error of a reload from a list of models to something else."""
    return FailedPrecondition(
        "Cannot transition to requested config. It is only legal to transition from one "
        "ModelConfigList to another."
    )


def _decode_entry(entry: Message) -> ModelConfig:
    _check_base_path(entry.name, base_path=entry.base_path)
    if entry.HasField("logging_config"):
        raise InvalidArgument("No request-logger-creator provided.")
    model = MonitoredModel(
        ModelName(entry.name), entry.base_path, _decode_policy(entry.model_version_policy)
    )
    labels = {
        VersionLabel(label): Version(version) for label, version in entry.version_labels.items()
    }
    return ModelConfig(model, _decode_platform(entry), labels)


def _check_base_path(name: str, *, base_path: str) -> None:
    if not base_path.startswith("/") and "://" not in base_path:
        raise InvalidArgument(
            f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}"
        )


def _decode_policy(message: Message) -> VersionPolicy:
    match message.WhichOneof("policy_choice"):
        case "all":
            return All()
        case "specific":
            return Specific(tuple(Version(version) for version in message.specific.versions))
        case "latest":
            return Latest(message.latest.num_versions)
    return Latest()


def _decode_platform(entry: Message) -> str:
    settings = "ModelServerConfig::model_type (deprecated) {} ModelServerConfig::model_platform"
    if entry.model_type and entry.model_platform:
        raise InvalidArgument(
            f"Illegal setting both {settings.format('and')}, model name is {entry.name}"
        )
    if not entry.model_type and not entry.model_platform:
        raise InvalidArgument(
            f"Illegal setting neither {settings.format('nor')}, model name is {entry.name}"
        )
    if entry.model_type not in {0, 1}:
        raise InvalidArgument(
            f"ModelServerConfig::model_type choice {entry.model_type} not supported."
        )
    platform: str = entry.model_platform or TENSORFLOW_PLATFORM
    if platform not in {TENSORFLOW_PLATFORM, LANGUAGE_MODEL_PLATFORM}:
        raise InvalidArgument(f"Model {entry.name} requests unsupported platform {platform}")
    return platform
