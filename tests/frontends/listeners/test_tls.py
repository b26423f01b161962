import dataclasses
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from aspira.contracts.errors import InvalidArgument, NotFound, ServingError
from aspira.frontends.listeners import tls as tls_module
from aspira.frontends.listeners.tls import Tls, make_ssl_context, read_tls, write_private_file
from certificates import Certificate, lock_key, make_certificate, write_ssl_config

WriteConfig = Callable[..., Path]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Certificate:
    return make_certificate(directory, name="authority")


@pytest.fixture(scope="module")
def server(directory: Path, authority: Certificate) -> Certificate:
    return make_certificate(directory, name="server", issuer=authority)


@pytest.fixture
def write(server: Certificate, tmp_path: Path) -> WriteConfig:
    """Writes a config of the server's key and certificate, or of what is given instead."""

    def write_config(**fields: str | bool | None) -> Path:
        given = {"key": server.key, "cert": server.cert, **fields}
        return write_ssl_config(tmp_path / "ssl.config", **given)  # type: ignore[arg-type]

    return write_config


def refusal(file: Path, *, error: type[ServingError] = InvalidArgument) -> str:
    with pytest.raises(error) as caught:
        read_tls(str(file))
    return caught.value.message


def test_without_a_file_there_is_no_encryption() -> None:
    assert read_tls("") is None


def test_a_key_and_a_certificate_are_enough(write: WriteConfig, server: Certificate) -> None:
    assert read_tls(str(write())) == Tls(server.key, server.cert)


@pytest.mark.parametrize(("client_verify", "is_asked"), [(True, True), (False, False)])
def test_clients_are_asked_only_to_be_verified(
    write: WriteConfig, authority: Certificate, client_verify: bool, is_asked: bool
) -> None:
    tls = read_tls(str(write(custom_ca=authority.cert, client_verify=client_verify)))
    assert tls is not None
    assert tls.client_ca == (authority.cert if is_asked else "")
    assert make_ssl_context(tls).verify_mode is (ssl.CERT_REQUIRED if is_asked else ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"key": ""}, "server_key is missing"),
        ({"cert": ""}, "server_cert is missing"),
        ({"key": "x"}, "server_key is not a private key in PEM form without a password"),
        ({"cert": "x"}, "server_cert is not a certificate in PEM form"),
        ({"cert": "ä"}, "server_cert is not a certificate in PEM form"),
        ({"custom_ca": "x"}, "custom_ca is not a certificate in PEM form"),
        (
            {"client_verify": True},
            "custom_ca is missing, and client_verify would turn every client away",
        ),
    ],
)
def test_a_bad_field_is_refused_by_name(
    write: WriteConfig, fields: dict[str, str | bool], problem: str
) -> None:
    file = write(**fields)
    assert refusal(file) == f"Invalid SSLConfig file: '{file}': {problem}"


def test_a_damaged_certificate_is_refused(write: WriteConfig, server: Certificate) -> None:
    file = write(cert=server.cert[:200])
    assert refusal(file) == (
        f"Invalid SSLConfig file: '{file}': server_cert is not a certificate in PEM form"
    )


def test_a_locked_key_is_refused_without_a_question(
    write: WriteConfig, server: Certificate
) -> None:
    file = write(key=lock_key(server, password="password"))
    assert refusal(file) == (
        f"Invalid SSLConfig file: '{file}': server_key is not a private key in PEM form without a "
        "password"
    )


@pytest.mark.parametrize(
    "algorithm", [("-newkey", "rsa:2048"), ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384")]
)
def test_a_key_of_another_certificate_is_refused(
    write: WriteConfig, directory: Path, algorithm: tuple[str, ...]
) -> None:
    other = make_certificate(directory, name="other", algorithm=algorithm)
    file = write(key=other.key)
    assert refusal(file) == (
        f"Invalid SSLConfig file: '{file}': server_key is not the key of server_cert"
    )


def test_a_short_key_is_refused(write: WriteConfig, directory: Path) -> None:
    weak = make_certificate(directory, name="weak", algorithm=("-newkey", "rsa:1024"))
    file = write(key=weak.key, cert=weak.cert)
    assert refusal(file) == (
        f"Invalid SSLConfig file: '{file}': server_cert has a key that is too short to be safe"
    )


def test_a_file_that_does_not_parse_is_told_without_its_text(tmp_path: Path) -> None:
    file = tmp_path / "ssl.config"
    file.write_text('server_key: "secret\n')
    message = refusal(file)
    assert message.startswith(
        f"Invalid protobuf file: '{file}': Error parsing text-format "
        "tensorflow.serving.SSLConfig: 1:13: "
    )
    assert '"secret' not in message


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nothing"
    assert refusal(file, error=NotFound) == f"{file}; No such file or directory"


def test_nothing_secret_is_shown(server: Certificate) -> None:
    assert repr(Tls(server.key, server.cert, "ca")) == "Tls()"
    assert all(not field.repr for field in dataclasses.fields(Tls))


def test_the_files_for_the_library_are_private_and_do_not_stay(
    server: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def write(path: Path, *, text: str) -> None:
        write_private_file(path, text=text)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        written.append(path)

    monkeypatch.setattr(tls_module, "write_private_file", write)
    make_ssl_context(Tls(server.key, server.cert))
    assert [path.name for path in written] == ["key.pem", "cert.pem"]
    assert not any(path.parent.exists() for path in written)


def test_a_private_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_private_file(path, text="longer")
    write_private_file(path, text="ä")
    assert path.read_text(encoding="utf-8") == "ä"
