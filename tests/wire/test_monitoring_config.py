import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.wire.monitoring_config import make_monitoring_config
from aspira.wire.text_format import parse_text


def test_it_is_empty_at_first() -> None:
    config = make_monitoring_config()
    assert not config.HasField("prometheus_config")
    assert config.prometheus_config.enable is False
    assert config.prometheus_config.path == ""


def test_the_documented_file_is_understood() -> None:
    config = make_monitoring_config()
    text = 'prometheus_config {\n  enable: true,\n  path: "/metrics"\n}'
    parse_text(text, into=config, origin="monitoring.config")
    assert config.prometheus_config.enable is True
    assert config.prometheus_config.path == "/metrics"


def test_on_the_wire_it_is_tensorflow_servings() -> None:
    config = make_monitoring_config()
    config.prometheus_config.enable = True
    config.prometheus_config.path = "/m"
    assert config.SerializeToString() == b"\x0a\x06\x08\x01\x12\x02/m"


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_text("prometheus {}", into=make_monitoring_config(), origin="monitoring.config")
    assert "tensorflow.serving.MonitoringConfig" in caught.value.message


def test_each_call_makes_a_message_of_its_own() -> None:
    first, second = make_monitoring_config(), make_monitoring_config()
    first.prometheus_config.enable = True
    assert second.prometheus_config.enable is False
