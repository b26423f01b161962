"""Drives a server with h2load or wrk and reads what they report, failures first."""

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from endpoints import Endpoint, Protocol
from servers import bind_to_parent

_OVERTIME_S = 30
_PLACE_LUA = Path(__file__).with_name("post.lua")
_RATE = re.compile(r"^finished in .*?, ([\d.]+) req/s", re.MULTILINE)
_REQUESTS = re.compile(
    r"^requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, "
    r"(\d+) failed, (\d+) errored, (\d+) timeout",
    re.MULTILINE,
)
_STATUSES = re.compile(r"^status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", re.MULTILINE)
_DATA_BYTES = re.compile(r"^traffic: .*\((\d+)\) data", re.MULTILINE)


class LoadError(Exception):
    """What came out is no measurement; the text says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests are in flight: `num_streams` on each of `num_connections`."""

    num_connections: int
    num_streams: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client saw; every request was answered, and well."""

    requests_per_s: float
    num_requests: int
    p50_ms: float
    p99_ms: float


def apply_load(endpoint: Endpoint, *, port: int, load: Load, seconds: int) -> Outcome:
    """Keep the endpoint busy for `seconds`.

    Raises:
        LoadError: a request failed, or the tool's report makes no sense.
    """
    apply = _apply_h2load if endpoint.protocol is Protocol.GRPC else _apply_wrk
    with tempfile.TemporaryDirectory(prefix="aspira-bench-") as name:
        directory = Path(name)
        (directory / "body").write_bytes(endpoint.body)
        return apply(endpoint, port=port, load=load, seconds=seconds, directory=directory)


def _apply_h2load(
    endpoint: Endpoint, *, port: int, load: Load, seconds: int, directory: Path
) -> Outcome:
    log = directory / "requests.tsv"
    report = _run_tool(
        [
            "h2load",
            "--threads=1",
            f"--clients={load.num_connections}",
            f"--max-concurrent-streams={load.num_streams}",
            f"--duration={seconds}",
            f"--data={directory / 'body'}",
            f"--log-file={log}",
            *_header_flags(endpoint),
            f"http://127.0.0.1:{port}{endpoint.path}",
        ],
        limit_s=seconds + _OVERTIME_S,
    )
    return read_h2load_report(report, log=log, answer_bytes=endpoint.answer_bytes)


def read_h2load_report(report: str, *, log: Path, answer_bytes: int) -> Outcome:
    """The figures of a run whose every answer had `answer_bytes` of body.

    A gRPC error travels as HTTP status 200, but without a message: the bytes give it away.

    Raises:
        LoadError: see `apply_load`.
    """
    rate = float(_find(_RATE, text=report)[0])
    done, succeeded, *bad = (int(count) for count in _find(_REQUESTS, text=report))
    _, *others = (int(count) for count in _find(_STATUSES, text=report))
    data_bytes = int(_find(_DATA_BYTES, text=report)[0])
    if not done:
        raise LoadError("no request was answered")
    if any(bad) or any(others) or succeeded != done:
        failed, errored, timed_out = bad
        raise LoadError(
            f"of {done} requests {failed} failed, {errored} broke off, {timed_out} timed out, "
            f"{sum(others)} had a status other than 2xx"
        )
    if data_bytes < done * answer_bytes:
        raise LoadError(f"{done} answers had {data_bytes} bytes, not {answer_bytes} each")
    p50_ms, p99_ms = _read_latencies(log)
    return Outcome(rate, num_requests=done, p50_ms=p50_ms, p99_ms=p99_ms)


def _read_latencies(log: Path) -> tuple[float, float]:
    """Median and 99th percentile in ms. Columns: start, HTTP status, microseconds to the end."""
    rows = np.loadtxt(log, usecols=(1, 2), ndmin=2)
    answered_us = rows[rows[:, 0] == 200, 1]
    p50_us, p99_us = np.percentile(answered_us, (50, 99))
    return float(p50_us) / 1e3, float(p99_us) / 1e3


def _apply_wrk(
    endpoint: Endpoint, *, port: int, load: Load, seconds: int, directory: Path
) -> Outcome:
    report = _run_tool(
        [
            "wrk",
            "--threads=1",
            f"--connections={load.num_connections}",
            f"--duration={seconds}s",
            "--timeout=10s",
            f"--script={_PLACE_LUA}",
            *_header_flags(endpoint),
            f"http://127.0.0.1:{port}{endpoint.path}",
            "--",
            str(directory / "body"),
        ],
        limit_s=seconds + _OVERTIME_S,
    )
    return read_wrk_report(report)


def read_wrk_report(report: str) -> Outcome:
    """The figures that post.lua prints.

    Raises:
        LoadError: see `apply_load`.
    """
    lines = [line for line in report.splitlines() if line.startswith('{"requests"')]
    if len(lines) != 1:
        raise LoadError("wrk did not finish its report")
    figures = json.loads(lines[0])
    num_requests = figures["requests"]
    if failed := {name: count for name, count in figures["failed"].items() if count}:
        counts = ", ".join(f"{count} by {name}" for name, count in failed.items())
        raise LoadError(f"of {num_requests} requests failed {counts}")
    if not num_requests:
        raise LoadError("no request was answered")
    return Outcome(
        num_requests / (figures["duration_us"] / 1e6),
        num_requests=num_requests,
        p50_ms=figures["p50_us"] / 1e3,
        p99_ms=figures["p99_us"] / 1e3,
    )


def _header_flags(endpoint: Endpoint) -> list[str]:
    """The same for both tools."""
    return [f"--header={name}: {value}" for name, value in endpoint.headers]


def _run_tool(command: list[str], *, limit_s: float) -> str:
    try:
        done = subprocess.run(
            bind_to_parent(command), capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise LoadError(f"{command[0]} did not end") from None
    if done.returncode:
        raise LoadError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()[-200:]}")
    return done.stdout


def _find(pattern: re.Pattern[str], *, text: str) -> tuple[str, ...]:
    match = pattern.search(text)
    if match is None:
        raise LoadError("h2load did not finish its report")
    return match.groups()
