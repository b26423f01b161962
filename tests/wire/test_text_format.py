from pathlib import Path

import pytest
from tensorflow_serving.config import model_server_config_pb2

from aspira.contracts.errors import InvalidArgument, NotFound
from aspira.wire.text_format import (
    parse_json,
    parse_secret_file,
    parse_text,
    parse_text_file,
    read_text_file,
)


def config() -> model_server_config_pb2.ModelServerConfig:
    return model_server_config_pb2.ModelServerConfig()


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text('model_config_list { config { name: "ä" # why\n base_path: "/m" } }')
    message = config()
    parse_text_file(file, into=message)
    (entry,) = message.model_config_list.config
    assert (entry.name, entry.base_path) == ("ä", "/m")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model_config_list {\n  config {\n    nam: 'm'\n  }\n}", "3:5"),
        ("model_config_list {\n  config { name: 7 }\n}", "2:18"),
        ("model_config_list {", "1:"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_message(
    tmp_path: Path, text: str, place: str
) -> None:
    file = tmp_path / "models.config"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        parse_text_file(file, into=config())
    assert caught.value.message.startswith(
        f"Invalid protobuf file: '{file}': Error parsing text-format "
        f"tensorflow.serving.ModelServerConfig: {place}"
    )


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_text("model_config_lisst {}", into=config(), origin="--flag")
    assert "'--flag'" in caught.value.message
    assert "model_config_lisst" in caught.value.message


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        parse_text_file(tmp_path / "absent", into=config())
    assert caught.value.message == f"{tmp_path / 'absent'}; No such file or directory"


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        parse_text_file(tmp_path, into=config())
    assert caught.value.message == f"{tmp_path}; Is a directory"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgument) as caught:
        parse_text_file(file, into=config())
    assert caught.value.message == f"Invalid protobuf file: '{file}': it is not UTF-8 text"


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("ä\n", encoding="utf-8")
    assert read_text_file(file) == "ä\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("model_config_list {\n  config { base_path: 'a secret }\n}", "2:23"),
        ("model_config_list {\n  config { secret: 'x' }\n}", "2:12"),
        ("model_config_list { config { name: secret } }", "1:36"),
        ("model_config_list { config { name: 'secret\\xzz' } }", "1:36"),
    ],
)
def test_a_mistake_in_a_secret_file_is_told_without_its_text(
    tmp_path: Path, text: str, place: str
) -> None:
    file = tmp_path / "models.config"
    file.write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        parse_secret_file(file, into=config())
    assert caught.value.message == (
        f"Invalid protobuf file: '{file}': Error parsing text-format "
        f"tensorflow.serving.ModelServerConfig: {place}: not understood (the line is not shown, "
        "as it may hold a secret)"
    )
    assert caught.value.__cause__ is None


def test_a_secret_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text("model_config_list { config { name: 'm' } }")
    message = config()
    parse_secret_file(file, into=message)
    assert message.model_config_list.config[0].name == "m"


def test_a_secret_file_that_is_missing_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nothing"
    with pytest.raises(NotFound) as caught:
        parse_secret_file(file, into=config())
    assert caught.value.message == f"{file}; No such file or directory"


def test_json_is_read_by_either_spelling_of_a_field() -> None:
    for text in (
        '{"modelConfigList": {"config": [{"name": "m", "basePath": "/m"}]}}',
        '{"model_config_list": {"config": [{"name": "m", "base_path": "/m"}]}}',
    ):
        message = config()
        parse_json(text, into=message, origin="body")
        assert message.model_config_list.config[0].base_path == "/m"


@pytest.mark.parametrize("text", ["{", '{"nothing": 1}', '{"modelConfigList": 3}'])
def test_a_mistake_in_json_is_told(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_json(text, into=config(), origin="body")
    assert caught.value.message.startswith(
        "Invalid protobuf JSON: 'body': Error parsing tensorflow.serving.ModelServerConfig: "
    )
