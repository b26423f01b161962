"""Certificates for tests, made by OpenSSL's command: an authority and what it vouches for."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
_HOST_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, as PEM files."""

    cert_file: Path
    key_file: Path

    @property
    def cert(self) -> str:
        return self.cert_file.read_text()

    @property
    def key(self) -> str:
        return self.key_file.read_text()


def make_certificate(
    directory: Path,
    *,
    name: str,
    issuer: Certificate | None = None,
    algorithm: tuple[str, ...] = _CURVE,
) -> Certificate:
    """A certificate for this machine; without an issuer it vouches for itself."""
    made = Certificate(directory / f"{name}.crt", directory / f"{name}.key")
    issued_by = ("-CA", str(issuer.cert_file), "-CAkey", str(issuer.key_file)) if issuer else ()
    subprocess.run(
        [
            *("openssl", "req", "-x509", *algorithm, "-noenc", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", _HOST_NAMES, *issued_by),
            *("-keyout", str(made.key_file), "-out", str(made.cert_file)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return made


def lock_key(certificate: Certificate, *, password: str) -> str:
    """Its key in PEM, encrypted."""
    command = ["openssl", "pkey", "-in", str(certificate.key_file), "-aes256"]
    locked = subprocess.run(
        [*command, "-passout", f"pass:{password}"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return locked.stdout


def write_ssl_config(
    file: Path,
    *,
    key: str,
    cert: str,
    custom_ca: str = "",
    client_verify: bool | None = None,
) -> Path:
    """An SSLConfig as its documentation shows it: newlines as `\\n` in the strings."""
    fields = {"server_key": key, "server_cert": cert, "custom_ca": custom_ca}
    lines = [f'{name}: "{_escape(pem)}"' for name, pem in fields.items() if pem]
    if client_verify is not None:
        lines.append(f"client_verify: {str(client_verify).lower()}")
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def _escape(pem: str) -> str:
    return pem.replace("\n", "\\n")
