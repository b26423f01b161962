import json
import ssl
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aspira.cli import main
from certificates import make_certificate

EXIT_FAILED = 255
SUMMARY = {
    "num_records": 3,
    "num_shapes": 2,
    "num_too_large": 0,
    "model_version": "1",
    "base_path": "/models/m",
}


class StandIn(BaseHTTPRequestHandler):
    """An admin port that gives the answer it was told to give."""

    status: ClassVar[int] = 200
    body: ClassVar[bytes] = b"records"
    summary: ClassVar[dict[str, Any]] = SUMMARY
    paths: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.send_response(self.status)
        self.send_header("aspira-recording", json.dumps(self.summary))
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[StandIn]]:
    monkeypatch.setattr(StandIn, "paths", [])
    with HTTPServer(("127.0.0.1", 0), StandIn) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setattr(StandIn, "url", f"http://127.0.0.1:{server.server_port}", raising=False)
        yield StandIn
        server.shutdown()
        thread.join()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(port: Any, *flags: str) -> int:
    return main.run(["warmup", "record", f"--admin={port.url}", "--model=a/b", *flags])


def test_the_file_is_written_and_the_user_told_where_it_belongs(
    port: type[StandIn], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(port) == 0
    file = here / "tf_serving_warmup_requests"
    assert file.read_bytes() == b"records"
    assert list(here.iterdir()) == [file]
    assert stat.S_IMODE(file.stat().st_mode) & 0o600 == 0o600
    assert port.paths == [
        (
            "/v1/models/a%2Fb:record_warmup?num_records=100&num_records_per_shape=5"
            "&timeout_seconds=60.0&sampling_rate=1.0"
        )
    ]
    said = capsys.readouterr().err
    assert "Wrote 3 records, of 2 combinations of API, signature and shapes, to " in said
    assert "/models/m/VERSION/assets.extra/tf_serving_warmup_requests" in said
    assert "They hold what clients sent" in said
    assert "too large" not in said


def test_the_flags_reach_the_server(port: type[StandIn], here: Path) -> None:
    flags = ("--version=7", "--num_records=9", "--timeout_seconds=1.5", "--output=x")
    assert record(port, *flags, "--num_records_per_shape=2", "--sampling_rate=0.5") == 0
    assert (here / "x").read_bytes() == b"records"
    assert port.paths == [
        (
            "/v1/models/a%2Fb/versions/7:record_warmup?num_records=9&num_records_per_shape=2"
            "&timeout_seconds=1.5&sampling_rate=0.5"
        )
    ]


def test_what_was_too_large_is_told(
    port: type[StandIn],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(port, "summary", {**SUMMARY, "num_too_large": 4})
    assert record(port) == 0
    assert "4 requests were too large and left out." in capsys.readouterr().err


def test_a_file_is_replaced_only_if_that_is_wanted(
    port: type[StandIn], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = here / "tf_serving_warmup_requests"
    file.write_bytes(b"old")
    assert record(port) == EXIT_FAILED
    assert file.read_bytes() == b"old"
    assert port.paths == []
    assert "exists; --overwrite replaces it" in capsys.readouterr().err
    assert record(port, "--overwrite") == 0
    assert file.read_bytes() == b"records"


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (404, b'{"error": "No request to record"}', "No request to record"),
        (500, b"oh", "oh"),
        (503, b"", "HTTP Error 503"),
    ],
)
def test_an_error_of_the_server_is_told_and_nothing_written(
    port: type[StandIn],
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    body: bytes,
    text: str,
) -> None:
    monkeypatch.setattr(port, "status", status)
    monkeypatch.setattr(port, "body", body)
    assert record(port) == EXIT_FAILED
    assert f"aspira warmup record: {text}" in capsys.readouterr().err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--admin=http://h:1"], "--model is missing"),
        (["--model=m"], "--admin has to be the URL"),
        (["--model=m", "--admin=localhost:8502"], "--admin has to be the URL"),
        (["--nope"], "unknown argument: --nope"),
        (["--num_records=many"], "Couldn't interpret value many for flag num_records."),
        (["--model=m", "--admin=http://h:1", "--output=/nonexistent/x"], "is no directory"),
        (["--model=m", "--admin=http://127.0.0.1:1"], "no answer from http://127.0.0.1:1: "),
        (["--model=m", "--admin=https://h:1", "--ca_file=/nonexistent"], "no answer from https"),
    ],
)
def test_refusals(
    flags: list[str], text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["warmup", "record", *flags]) == EXIT_FAILED
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status"), [(["record", "--help"], 0), (["--help"], 0), ([], EXIT_FAILED)]
)
def test_help_lists_the_flags(
    arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["warmup", *arguments]) == status
    assert "--num_records=100" in capsys.readouterr().out


def test_an_encrypted_admin_port_is_asked_if_its_authority_is_trusted(
    port: type[StandIn], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = make_certificate(here, name="authority")
    certificate = make_certificate(here, name="server", issuer=authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    with HTTPServer(("127.0.0.1", 0), StandIn) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        asked = ["warmup", "record", "--model=m", f"--admin=https://127.0.0.1:{server.server_port}"]
        try:
            assert main.run(asked) == EXIT_FAILED
            assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
            assert main.run([*asked, f"--ca_file={authority.cert_file}"]) == 0
        finally:
            server.shutdown()
            thread.join()
    assert (here / "tf_serving_warmup_requests").read_bytes() == b"records"
