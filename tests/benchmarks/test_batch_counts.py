"""Sizes of batches are read from a server's metrics."""

from collections.abc import Callable
from types import ModuleType

import pytest

from aspira.contracts.events import BatchEnded
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.observability.batch_metrics import BatchMetrics
from aspira.observability.exposition import render


@pytest.fixture
def batch_counts(import_benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return import_benchmark("batch_counts")


def test_runs_and_rows_of_a_page_are_counted(batch_counts: ModuleType) -> None:
    metrics = BatchMetrics()
    servable_id = ServableId(ModelName("m"), Version(1))
    for num_rows in (3, 16):
        metrics.count(BatchEnded(servable_id, (num_rows,), (0.0,), 1, num_rows, num_rows, 0.001))

    page = render(metrics.families).decode()

    assert batch_counts.parse_batches(page) == (2, 19)


def test_before_the_first_batch_there_are_none(batch_counts: ModuleType) -> None:
    assert batch_counts.parse_batches("") == (0, 0)
