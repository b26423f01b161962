"""`aspira warmup record`: writes a warm-up file from the requests that a running server answers."""

import json
import os
import ssl
import tempfile
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from aspira.cli.flags import PlainFlag, guess_meant, match_flags, parse_value, usage
from aspira.cli.serve import EXIT_FAILED, report
from aspira.contracts.errors import InvalidArgument

_PROGRAM = "aspira warmup record"
_FILE_NAME = "tf_serving_warmup_requests"
_SUMMARY_HEADER = "aspira-recording"
# Beyond the time that the recording itself takes.
_PATIENCE_S = 60.0
_SENT_ON = ("num_records", "num_records_per_shape", "timeout_seconds", "sampling_rate")


_FLAGS = (
    PlainFlag("admin", "", "The server's admin port, such as http://localhost:8502."),
    PlainFlag("model", "", "Name of the model."),
    PlainFlag("version", 0, "The version that has to have answered. 0 means any."),
    PlainFlag("num_records", 100, "Records to write at most; 1000 is the most that servers read."),
    PlainFlag(
        "num_records_per_shape",
        5,
        "Records at most of each combination of API, signature and tensor shapes.",
    ),
    PlainFlag("timeout_seconds", 60.0, "How long to record at most."),
    PlainFlag("sampling_rate", 1.0, "The share of requests to look at, at most 1."),
    PlainFlag("output", _FILE_NAME, "The file to write."),
    PlainFlag("overwrite", default=False, help="Replace the file if there is one."),
    PlainFlag("ca_file", "", "Certificates to trust, in PEM, for an https address."),
)


class _Answer(NamedTuple):
    """The file's content, and what the server says of it."""

    content: bytes
    summary: dict[str, Any]


class _Failed(Exception):
    """What went wrong, for the person who typed the command."""


def run_warmup(arguments: list[str]) -> int:
    """Run `aspira warmup ...`; returns the exit status."""
    help_text = usage(_FLAGS, program=f"{_PROGRAM} --admin=URL --model=NAME")
    if arguments[:1] != ["record"] or {"--help", "-h"} & set(arguments):
        print(help_text, end="")
        return 0 if {"--help", "-h"} & set(arguments) else EXIT_FAILED
    try:
        _record(_parse(arguments[1:]))
    except (_Failed, InvalidArgument) as error:
        report(f"{_PROGRAM}: {error.args[0]}")
        return EXIT_FAILED
    return 0


def _parse(arguments: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {flag.name: flag.default for flag in _FLAGS}
    for argument, flag, text in match_flags(arguments, flags=_FLAGS):
        if flag is None:
            meant = guess_meant(argument, flags=_FLAGS)
            raise _Failed(
                f"unknown argument: {argument}{meant} (`{_PROGRAM} --help` lists the flags)"
            )
        values[flag.name] = parse_value(text, flag=flag)
    if not values["model"]:
        raise _Failed("--model is missing: whose requests are to be recorded?")
    if not values["admin"].startswith(("http://", "https://")):
        raise _Failed("--admin has to be the URL of a server's admin port, http:// or https://")
    return values


def _record(values: dict[str, Any]) -> None:
    output = Path(values["output"])
    # Found out before traffic has been waited for.
    if output.exists() and not values["overwrite"]:
        raise _Failed(f"{output} exists; --overwrite replaces it, --output names another file")
    if not output.absolute().parent.is_dir():
        raise _Failed(f"{output.absolute().parent} is no directory")
    report(
        f"Recording requests of {values['model']} for at most {values['timeout_seconds']:g} s ..."
    )
    answer = _ask(values)
    try:
        _write(output, content=answer.content, is_overwriting=values["overwrite"])
    except OSError as error:
        raise _Failed(f"cannot write {output}: {error.strerror}") from error
    report(_describe(output, summary=answer.summary))


def _ask(values: dict[str, Any]) -> _Answer:
    version = f"/versions/{values['version']}" if values["version"] else ""
    query = urlencode({name: values[name] for name in _SENT_ON})
    place = f"/v1/models/{quote(values['model'], safe='')}{version}:record_warmup"
    url = f"{values['admin'].rstrip('/')}{place}?{query}"
    request = urllib.request.Request(url, method="POST")  # noqa: S310 - http or https, checked
    timeout_s = values["timeout_seconds"] + _PATIENCE_S
    try:
        context = ssl.create_default_context(cafile=values["ca_file"] or None)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=timeout_s) as answer:
            summary = json.loads(answer.headers[_SUMMARY_HEADER] or "{}")
            return _Answer(answer.read(), summary)
    except urllib.error.HTTPError as error:
        raise _Failed(_error_text(error.read()) or str(error)) from error
    except (OSError, HTTPException, ValueError) as error:
        raise _Failed(f"no answer from {values['admin']}: {error}") from error


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()


def _write(output: Path, *, content: bytes, is_overwriting: bool) -> None:
    """The whole file or none of it, and never in another's place unless that is wanted."""
    descriptor, name = tempfile.mkstemp(prefix=f".{output.name}-", dir=output.absolute().parent)
    written = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # As any other new file: the server that reads it may run as another user.
        umask = os.umask(0)
        os.umask(umask)
        written.chmod(0o666 & ~umask)
        if output.exists() and not is_overwriting:
            raise _Failed(f"{output} has come into being meanwhile; it was left as it is")
        written.replace(output)
    finally:
        written.unlink(missing_ok=True)


def _describe(output: Path, *, summary: dict[str, Any]) -> str:
    large = summary.get("num_too_large", 0)
    left_out = f"{large} requests were too large and left out.\n" if large else ""
    base_path = summary.get("base_path") or "/MODEL_BASE_PATH"
    return (
        f"Wrote {summary.get('num_records')} records, of {summary.get('num_shapes')} combinations "
        f"of API, signature and shapes, to {output}.\n{left_out}"
        "They hold what clients sent: treat the file as you treat that.\n"
        f"To warm up a version, put the file in its directory before it is loaded:\n"
        f"  {base_path}/VERSION/assets.extra/{_FILE_NAME}"
    )
