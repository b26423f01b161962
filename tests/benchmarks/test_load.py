"""What h2load and wrk report, taken from real runs, as figures or as the reason for none."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

H2LOAD_REPORT = """\
starting benchmark...
spawning thread #0: 2 total client(s). Timing-based test with 0s of warm-up time and 1s of main \
duration for measurements.
Warm-up started for thread #0.
progress: 50% of clients started
progress: 100% of clients started
Warm-up phase is over for thread #0.
Main benchmark duration is started for thread #0.
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.00s, 46.50 req/s, 5.43KB/s
requests: 46 total, 48 started, 46 done, 46 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 48 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 5.43KB (5558) total, 3.75KB (3840) headers (space savings 0.00%), 230B (230) data
                     min         max         mean         sd        +/- sd
time for request:      660us     59.99ms     42.32ms      9.31ms    93.48%
time for connect:        5us        21us        13us        10us   100.00%
time to 1st byte:      671us       698us       685us        18us   100.00%
req/s           :      22.99       22.99       22.99        0.00   100.00%
"""
H2LOAD_LOG = (
    "1796028724760764\t200\t1000\n1796028724760773\t200\t3000\n1796028724761451\t200\t5000\n"
)
REQUESTS = "46 total, 48 started, 46 done, 46 succeeded, 0 failed, 0 errored, 0 timeout"
STATUSES = "48 2xx, 0 3xx, 0 4xx, 0 5xx"

WRK_REPORT = """\
Running 1s test @ http://127.0.0.1:18471/x
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    42.14ms    8.19ms  44.02ms   95.65%
    Req/Sec    46.00      9.66    60.00     70.00%
  46 requests in 1.00s, 5.43KB read
Requests/sec:     45.95
Transfer/sec:      5.42KB
"""
WRK_FIGURES = (
    '{"requests": 46, "duration_us": 2000000, "p50_us": 43802, "p99_us": 44020, "failed": '
    '{"connect": 0, "read": 0, "write": 0, "timeout": 0, "status": 0}}\n'
)


@pytest.fixture
def load(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("load")


def h2load_refusal(load: ModuleType, report: str, *, log: Path, answer_bytes: int = 5) -> str:
    with pytest.raises(load.LoadError) as caught:
        load.read_h2load_report(report, log=log, answer_bytes=answer_bytes)
    return str(caught.value)


def wrk_refusal(load: ModuleType, report: str) -> str:
    with pytest.raises(load.LoadError) as caught:
        load.read_wrk_report(report)
    return str(caught.value)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "requests.tsv"
    path.write_text(H2LOAD_LOG)
    return path


def test_h2load_figures(load: ModuleType, log: Path) -> None:
    outcome = load.read_h2load_report(H2LOAD_REPORT, log=log, answer_bytes=5)
    assert outcome.requests_per_s == 46.5
    assert outcome.num_requests == 46
    assert outcome.p50_ms == 3.0
    assert outcome.p99_ms == pytest.approx(4.96)


def test_h2load_latencies_leave_out_what_was_not_answered(load: ModuleType, log: Path) -> None:
    log.write_text(H2LOAD_LOG + "1796028724761460\t0\t900000\n")
    assert load.read_h2load_report(H2LOAD_REPORT, log=log, answer_bytes=5).p50_ms == 3.0


@pytest.mark.parametrize(
    ("requests", "statuses", "reason"),
    [
        (
            "46 total, 48 started, 46 done, 0 succeeded, 46 failed, 0 errored, 0 timeout",
            "0 2xx, 0 3xx, 0 4xx, 48 5xx",
            "of 46 requests 46 failed, 0 broke off, 0 timed out, 48 had a status other than 2xx",
        ),
        (
            "46 total, 48 started, 46 done, 44 succeeded, 2 failed, 2 errored, 0 timeout",
            STATUSES,
            "of 46 requests 2 failed, 2 broke off, 0 timed out, 0 had a status other than 2xx",
        ),
        (
            "46 total, 48 started, 46 done, 46 succeeded, 0 failed, 0 errored, 1 timeout",
            STATUSES,
            "of 46 requests 0 failed, 0 broke off, 1 timed out, 0 had a status other than 2xx",
        ),
        (
            REQUESTS,
            "47 2xx, 0 3xx, 1 4xx, 0 5xx",
            "of 46 requests 0 failed, 0 broke off, 0 timed out, 1 had a status other than 2xx",
        ),
        (
            "46 total, 48 started, 46 done, 45 succeeded, 0 failed, 0 errored, 0 timeout",
            STATUSES,
            "of 46 requests 0 failed, 0 broke off, 0 timed out, 0 had a status other than 2xx",
        ),
        (
            "0 total, 0 started, 0 done, 0 succeeded, 0 failed, 0 errored, 0 timeout",
            "0 2xx, 0 3xx, 0 4xx, 0 5xx",
            "no request was answered",
        ),
    ],
)
def test_h2load_failures_are_no_measurement(
    load: ModuleType, log: Path, requests: str, statuses: str, reason: str
) -> None:
    report = H2LOAD_REPORT.replace(REQUESTS, requests).replace(STATUSES, statuses)
    assert h2load_refusal(load, report, log=log) == reason


def test_grpc_errors_show_by_answers_without_a_message(load: ModuleType, log: Path) -> None:
    assert h2load_refusal(load, H2LOAD_REPORT, log=log, answer_bytes=6) == (
        "46 answers had 230 bytes, not 6 each"
    )


@pytest.mark.parametrize("line", ["finished in", "requests: ", "status codes: ", "traffic: "])
def test_an_h2load_report_without_its_end_is_no_measurement(
    load: ModuleType, log: Path, line: str
) -> None:
    report = H2LOAD_REPORT[: H2LOAD_REPORT.index(f"\n{line}")]
    assert h2load_refusal(load, report, log=log) == "h2load did not finish its report"
    assert h2load_refusal(load, "", log=log) == "h2load did not finish its report"


def test_wrk_figures(load: ModuleType) -> None:
    outcome = load.read_wrk_report(WRK_REPORT + WRK_FIGURES)
    assert outcome == load.Outcome(23.0, num_requests=46, p50_ms=43.802, p99_ms=44.02)


@pytest.mark.parametrize("cause", ["connect", "read", "write", "timeout", "status"])
def test_wrk_failures_are_no_measurement(load: ModuleType, cause: str) -> None:
    figures = WRK_FIGURES.replace(f'"{cause}": 0', f'"{cause}": 45')
    report = WRK_REPORT.replace("Requests/sec", "  Non-2xx or 3xx responses: 45\nRequests/sec")
    assert wrk_refusal(load, report + figures) == f"of 46 requests failed 45 by {cause}"


def test_wrk_names_every_cause(load: ModuleType) -> None:
    figures = WRK_FIGURES.replace('"read": 0', '"read": 2').replace('"status": 0', '"status": 1')
    assert wrk_refusal(load, figures) == "of 46 requests failed 2 by read, 1 by status"


def test_wrk_without_answers_is_no_measurement(load: ModuleType) -> None:
    figures = WRK_FIGURES.replace('"requests": 46', '"requests": 0')
    assert wrk_refusal(load, figures) == "no request was answered"


@pytest.mark.parametrize("report", ["", WRK_REPORT, WRK_FIGURES * 2])
def test_a_wrk_report_without_its_one_line_of_figures_is_no_measurement(
    load: ModuleType, report: str
) -> None:
    assert wrk_refusal(load, report) == "wrk did not finish its report"
