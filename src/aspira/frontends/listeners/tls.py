"""Encryption of connections: the key and the certificates of `--ssl_config_file`, checked.

They are checked before anything starts, with Python's own TLS library, since what Envoy and gRPC
say of a bad key names neither file nor field. No message and no `repr` holds the key.
"""

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from aspira.contracts.errors import InvalidArgument
from aspira.wire.ssl_config import make_ssl_config
from aspira.wire.text_format import parse_secret_file

_PROBLEMS: Mapping[str, str] = MappingProxyType(
    {
        "KEY_VALUES_MISMATCH": "server_key is not the key of server_cert",
        # What comes of a key of another algorithm.
        "NO_CERTIFICATE_ASSIGNED": "server_key is not the key of server_cert",
        "EE_KEY_TOO_SMALL": "server_cert has a key that is too short to be safe",
    }
)
"""By OpenSSL's name for what it met when it loaded key and certificate."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts. `client_ca` is empty where clients are not asked for a certificate."""

    server_key: str = field(repr=False)
    server_cert: str = field(repr=False)
    client_ca: str = field(default="", repr=False)


def read_tls(file: str) -> Tls | None:
    """What an SSLConfig file says; None without a file.

    Raises:
        NotFound: the file cannot be read.
        InvalidArgument: nothing could be served with it; the text names the file and the field.
    """
    if not file:
        return None
    config = make_ssl_config()
    parse_secret_file(Path(file), into=config)
    client_ca = config.custom_ca if config.client_verify else ""
    tls = Tls(config.server_key, config.server_cert, client_ca)
    try:
        _check_authority(config)
        _check_certificates(tls.server_cert, field_name="server_cert")
        make_ssl_context(tls)
    except _Refused as error:
        raise InvalidArgument(f"Invalid SSLConfig file: '{file}': {error}") from error
    return tls


def make_ssl_context(tls: Tls, *, is_certificate_optional: bool = False) -> ssl.SSLContext:
    """The same for Python's own servers, HTTP/1.1 only.

    Where clients are asked for a certificate, those without one are turned away unless it
    `is_certificate_optional`; a wrong one is refused either way.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    # Python reads a key from a file only.
    with tempfile.TemporaryDirectory(prefix="aspira-") as directory:
        key_file, cert_file = Path(directory) / "key.pem", Path(directory) / "cert.pem"
        write_private_file(key_file, text=tls.server_key)
        write_private_file(cert_file, text=tls.server_cert)
        _load_key(context, key_file=key_file, cert_file=cert_file)
    if tls.client_ca:
        context.load_verify_locations(cadata=tls.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL if is_certificate_optional else ssl.CERT_REQUIRED
    return context


def write_private_file(path: Path, *, text: str) -> None:
    """A new file that only this user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


class _Refused(Exception):
    """A field and what is wrong with it."""


def _check_authority(config: Any) -> None:
    if config.custom_ca:
        _check_certificates(config.custom_ca, field_name="custom_ca")
    elif config.client_verify:
        raise _Refused("custom_ca is missing, and client_verify would turn every client away")


def _check_certificates(pem: str, *, field_name: str) -> None:
    if not pem:
        raise _Refused(f"{field_name} is missing")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError) as error:
        raise _Refused(f"{field_name} is not a certificate in PEM form") from error


def _load_key(context: ssl.SSLContext, *, key_file: Path, cert_file: Path) -> None:
    if not key_file.stat().st_size:
        raise _Refused("server_key is missing")
    try:
        # Without a password function OpenSSL would ask at the terminal for that of a locked key.
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
    except ssl.SSLError as error:
        problem = _PROBLEMS.get(
            error.reason, "server_key is not a private key in PEM form without a password"
        )
        raise _Refused(problem) from error
