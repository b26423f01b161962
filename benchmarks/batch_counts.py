"""What a server's metrics say of the batches that it made."""

import re
from typing import NamedTuple

import requests

_METRICS_PATH = "/monitoring/prometheus/metrics"
_SIZES = ":tensorflow:serving:batching_session:processed_batch_size"
_TIMEOUT_S = 30


class BatchCounts(NamedTuple):
    """Since the server's start."""

    num_runs: float
    num_rows: float


def read_batches(port: int) -> BatchCounts:
    """Ask the server's REST port, which must have metrics."""
    answer = requests.get(f"http://127.0.0.1:{port}{_METRICS_PATH}", timeout=_TIMEOUT_S)
    answer.raise_for_status()
    return parse_batches(answer.text)


def parse_batches(page: str) -> BatchCounts:
    """The counts of a page of metrics; before the first batch there are none."""
    runs, rows = (_find(f"{_SIZES}_{part}", page=page) for part in ("count", "sum"))
    return BatchCounts(runs, rows)


def _find(name: str, *, page: str) -> float:
    match = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE)
    return float(match[1]) if match else 0.0
