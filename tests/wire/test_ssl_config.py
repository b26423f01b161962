from aspira.wire.ssl_config import make_ssl_config
from aspira.wire.text_format import parse_text


def test_it_is_empty_at_first() -> None:
    config = make_ssl_config()
    assert (config.server_key, config.server_cert, config.custom_ca) == ("", "", "")
    assert config.client_verify is False


def test_the_documented_file_is_understood() -> None:
    config = make_ssl_config()
    text = 'server_key: "a\\nb"\nserver_cert: "c"\ncustom_ca: "d"\nclient_verify: true\n'
    parse_text(text, into=config, origin="ssl.config")
    assert (config.server_key, config.server_cert, config.custom_ca) == ("a\nb", "c", "d")
    assert config.client_verify is True


def test_on_the_wire_it_is_tensorflow_servings() -> None:
    config = make_ssl_config()
    config.server_key, config.server_cert, config.custom_ca = "k", "c", "a"
    config.client_verify = True
    assert config.SerializeToString() == b"\x0a\x01k\x12\x01c\x1a\x01a\x20\x01"
