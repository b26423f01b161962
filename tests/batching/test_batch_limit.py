import pytest

from aspira.batching.batch_limit import BatchLimit
from aspira.batching.cost_model import CostModel


def learn(
    *, target_s: float, fixed_s: float, per_row_s: float, max_rows: int = 1000, slower: float = 1.0
) -> int:
    """The limit after it has been used to the full for a while."""
    model = CostModel()
    limit = BatchLimit(model, max_rows=max_rows, target_s=target_s)
    for index in range(400):
        rows = limit.rows if index % 3 else max(limit.rows // 2, 1)
        run_s = fixed_s + per_row_s * rows
        model.observe(rows, run_s=run_s)
        limit.observe(rows, run_s=run_s * slower)
    return limit.rows


def test_without_a_target_batches_are_as_large_as_allowed() -> None:
    assert learn(target_s=0.0, fixed_s=1.0, per_row_s=1.0, max_rows=7) == 7


def test_two_runs_fit_in_the_target() -> None:
    rows = learn(target_s=0.02, fixed_s=2e-3, per_row_s=1e-4)
    assert 2 * (2e-3 + 1e-4 * rows) <= 0.02
    assert rows >= 50


def test_a_target_that_cannot_be_met_means_one_at_a_time() -> None:
    assert learn(target_s=0.001, fixed_s=1e-3, per_row_s=1e-3) == 1


def test_a_model_without_a_cost_for_rows_gets_all() -> None:
    assert learn(target_s=0.02, fixed_s=1e-3, per_row_s=0.0, max_rows=64) == 64


def test_runs_that_last_longer_than_their_mean_cut_the_limit() -> None:
    smooth = learn(target_s=0.02, fixed_s=2e-3, per_row_s=1e-4)
    rough = learn(target_s=0.02, fixed_s=2e-3, per_row_s=1e-4, slower=1.5)
    assert rough < smooth
    assert 1.5 * (2e-3 + 1e-4 * rough) <= 0.0125


def test_it_starts_small_and_grows_by_what_was_tried() -> None:
    limit = BatchLimit(CostModel(), max_rows=100, target_s=1.0)
    assert limit.rows == 1
    sizes = []
    for _ in range(8):
        limit.observe(limit.rows, run_s=1e-3)
        sizes.append(limit.rows)
    assert sizes == [2, 4, 8, 16, 32, 64, 100, 100]


def test_a_batch_is_not_cut_where_that_would_save_no_time() -> None:
    assert 40 <= learn(target_s=0.001, fixed_s=1e-3, per_row_s=1e-5) <= 60


def test_trust_comes_back() -> None:
    model = CostModel()
    limit = BatchLimit(model, max_rows=10, target_s=0.02)
    limit.observe(10, run_s=1.0)
    cut = limit.rows
    for _ in range(30):
        limit.observe(1, run_s=1e-3)
    assert cut < 10
    assert limit.rows == 10


@pytest.mark.parametrize("rows", [0, 1])
def test_it_is_never_less_than_one(rows: int) -> None:
    limit = BatchLimit(CostModel(), max_rows=10, target_s=0.02)
    for _ in range(50):
        limit.observe(rows, run_s=1.0)
    assert limit.rows == 1
