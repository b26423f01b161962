import json
import shlex
from pathlib import Path

import pytest

from aspira.cli import demo
from aspira.frontends.listeners.options import ListenerOptions
from aspira.service.model_config import decode_model_configs, parse_model_config_text


@pytest.mark.parametrize(
    ("ssl_config_file", "parts"),
    [
        (
            "",
            ["  curl -d", " http://localhost:8501/v1/", "grpc.insecure_channel('localhost:8500')"],
        ),
        (
            "/ssl.config",
            [
                "  curl --cacert CA.pem -d",
                " https://localhost:8501/v1/",
                "grpc.secure_channel('localhost:8500', grpc.ssl_channel_credentials(",
            ],
        ),
    ],
)
def test_the_examples_fit_the_server(ssl_config_file: str, parts: list[str]) -> None:
    text = demo._how_to_call(ListenerOptions(ssl_config_file=ssl_config_file), example=[0.0])
    for part in parts:
        assert part in text
    assert ("http://" in text) == (not ssl_config_file)


@pytest.mark.parametrize(
    ("ssl_config_file", "command"),
    [("", "  curl -N "), ("/ssl.config", "  curl --cacert CA.pem -N ")],
)
def test_the_chat_can_be_pasted(ssl_config_file: str, command: str) -> None:
    text = demo._how_to_chat(ListenerOptions(ssl_config_file=ssl_config_file))
    (line,) = (line for line in text.splitlines() if line.startswith(command))
    *_, flag, body, url = shlex.split(line)
    assert (flag, json.loads(body)["model"]) == ("-d", "smollm2")
    assert url.endswith("://localhost:8501/v1/chat/completions")


def test_the_language_model_is_served_where_its_packages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert demo._write_language_model(tmp_path)
    assert demo._write_language_model(tmp_path)
    assert (tmp_path / "smollm2" / "1" / "model.gguf").exists()
    demo._write_config(tmp_path, has_language_model=True)
    text = (tmp_path / "models.config").read_text()
    configs = decode_model_configs(parse_model_config_text(text, origin="demo"))
    assert configs is not None
    assert set(configs) == {"digits", "half_plus_two", "smollm2"}
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    assert not demo._write_language_model(tmp_path)
    demo._write_config(tmp_path, has_language_model=False)
    text = (tmp_path / "models.config").read_text()
    configs = decode_model_configs(parse_model_config_text(text, origin="demo"))
    assert configs is not None
    assert set(configs) == {"digits", "half_plus_two"}
