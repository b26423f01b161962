from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.contracts.identity import ModelName
from aspira.lifecycle.listing import MonitoredModel
from aspira.lifecycle.version_choice import All, Latest, Specific, VersionPolicy
from aspira.service.model_config import (
    ModelConfig,
    ModelConfigs,
    cannot_transition,
    check_transition,
    decode_model_configs,
    parse_model_config_text,
    single_model_configs,
)

M = ModelName("m")


def parse(text: str) -> Any:
    return text_format.Parse(text, model_server_config_pb2.ModelServerConfig())


def decode_entries(*entries: str) -> ModelConfigs:
    listed = "".join(f"config {{ {entry} }}" for entry in entries)
    configs = decode_model_configs(parse(f"model_config_list {{ {listed} }}"))
    assert configs is not None
    return configs


def entry(rest: str = "", *, name: str = "m", platform: str = "tensorflow") -> str:
    return f'name: "{name}" base_path: "/models/{name}" model_platform: "{platform}" {rest}'


def test_the_documented_file() -> None:
    configs = decode_entries(
        entry(name="m"),
        entry(
            "model_version_policy { specific { versions: 43 versions: 42 } }"
            ' version_labels { key: "stable" value: 42 } version_labels { key: "x" value: 43 }',
            name="n",
        ),
    )
    assert configs == {
        "m": ModelConfig(MonitoredModel(M, "/models/m", Latest(1))),
        "n": ModelConfig(
            MonitoredModel(ModelName("n"), "/models/n", Specific((43, 42))),
            labels={"stable": 42, "x": 43},
        ),
    }


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", Latest(1)),
        ("model_version_policy {}", Latest(1)),
        ("model_version_policy { latest { num_versions: 3 } }", Latest(3)),
        ("model_version_policy { latest {} }", Latest(0)),
        ("model_version_policy { all {} }", All()),
        ("model_version_policy { specific { versions: [0, -1] } }", Specific((0, -1))),
        ("model_version_policy { specific {} }", Specific(())),
    ],
)
def test_version_policies(text: str, policy: VersionPolicy) -> None:
    assert decode_entries(entry(text))["m"].model.policy == policy


@pytest.mark.parametrize("base_path", ["/m", "gs://bucket/m", "s3://m", "file:///m"])
def test_absolute_paths_and_uris(base_path: str) -> None:
    configs = decode_entries(f'name: "m" base_path: "{base_path}" model_platform: "tensorflow"')
    assert configs["m"].model.base_path == base_path
    assert single_model_configs(MonitoredModel(M, base_path))["m"].model.base_path == base_path


def test_the_deprecated_type_names_the_platform() -> None:
    configs = decode_entries('name: "m" base_path: "/m" model_type: TENSORFLOW')
    assert configs["m"].platform == "tensorflow"


def test_a_language_model_may_be_called_one() -> None:
    assert decode_entries(entry(platform="language_model"))["m"].platform == "language_model"


SETTINGS = "ModelServerConfig::model_type (deprecated) {} ModelServerConfig::model_platform"


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ((entry(), entry()), "Illegal to list model m multiple times in config list"),
        *(
            (
                (f'name: "m" base_path: "{path}" model_platform: "tensorflow"',),
                f"Expected model m to have an absolute path or URI; got base_path()={path}",
            )
            for path in ("models/m", "", "./m", "file:m")
        ),
        (
            ('name: "m" base_path: "/m"',),
            f"Illegal setting neither {SETTINGS.format('nor')}, model name is m",
        ),
        (
            (entry("model_type: TENSORFLOW"),),
            f"Illegal setting both {SETTINGS.format('and')}, model name is m",
        ),
        (
            ('name: "m" base_path: "/m" model_type: OTHER',),
            "ModelServerConfig::model_type choice 2 not supported.",
        ),
        ((entry(platform="caffe"),), "Model m requests unsupported platform caffe"),
        ((entry("logging_config {}"),), "No request-logger-creator provided."),
    ],
)
def test_mistakes(entries: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_entries(*entries)
    assert caught.value.message == text


def test_a_custom_config_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_model_configs(parse("custom_model_config {}"))
    assert caught.value.message == "ModelServer does not yet support custom model config."


def test_an_empty_file_says_nothing_and_an_empty_list_says_no_models() -> None:
    assert decode_model_configs(parse("")) is None
    assert decode_model_configs(parse("model_config_list {}")) == {}


def test_a_single_model() -> None:
    model = MonitoredModel(M, "/models/m")
    assert single_model_configs(model) == {"m": ModelConfig(model)}


def test_a_single_model_needs_an_absolute_path_too() -> None:
    with pytest.raises(InvalidArgument) as caught:
        single_model_configs(MonitoredModel(M, "models"))
    assert caught.value.message == (
        "Expected model m to have an absolute path or URI; got base_path()=models"
    )


def config(name: str, *, platform: str = "tensorflow") -> ModelConfigs:
    model = MonitoredModel(ModelName(name), f"/{name}")
    return {ModelName(name): ModelConfig(model, platform)}


def test_a_platform_may_not_change() -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_transition(config("m"), after=config("m", platform="onnx"))
    assert caught.value.message == (
        "Illegal to change a model's platform. For model m platform was tensorflow and new "
        "platform requested is onnx"
    )


def test_anything_else_may() -> None:
    check_transition(config("m"), after=config("m"))
    check_transition(config("m"), after=config("n", platform="onnx"))
    check_transition(config("m"), after={})
    check_transition({}, after=config("m"))


def test_a_list_stays_a_list() -> None:
    error = cannot_transition()
    assert isinstance(error, FailedPrecondition)
    assert error.message == (
        "Cannot transition to requested config. It is only legal to transition from one "
        "ModelConfigList to another."
    )


def test_the_text_of_a_file_is_parsed() -> None:
    message = parse_model_config_text("model_config_list { config { name: 'm' } }", origin="file")
    assert [entry.name for entry in message.model_config_list.config] == ["m"]


def test_a_text_that_does_not_parse_is_refused_with_its_origin() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_model_config_text("model_config {}", origin="models.config")
    assert caught.value.message.startswith(
        "Invalid protobuf file: 'models.config': Error parsing text-format "
        "tensorflow.serving.ModelServerConfig: 1:1"
    )
