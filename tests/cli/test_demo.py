import pytest

from aspira.cli import demo
from aspira.frontends.listeners.options import ListenerOptions


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
