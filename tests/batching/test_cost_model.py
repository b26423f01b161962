import random

import pytest

from aspira.batching.cost_model import CostModel


def test_nothing_is_known_before_the_first_run() -> None:
    model = CostModel()
    assert model.cost is None
    assert model.seconds_per_row == 0.0


def test_the_line_is_found() -> None:
    model, chance = CostModel(), random.Random(1)
    for _ in range(200):
        rows = chance.randint(1, 64)
        model.observe(rows, run_s=(2e-3 + 1e-4 * rows) * chance.uniform(0.95, 1.05))
    assert model.cost is not None
    assert model.cost.fixed_s == pytest.approx(2e-3, rel=0.1)
    assert model.cost.per_row_s == pytest.approx(1e-4, rel=0.1)
    assert model.cost.run_s(1000) == pytest.approx(0.102, rel=0.1)


def test_runs_of_one_size_count_as_fixed() -> None:
    model = CostModel()
    for _ in range(10):
        model.observe(8, run_s=0.004)
    assert model.cost is not None
    assert model.cost.run_s(8) == pytest.approx(0.004)
    assert model.cost.per_row_s == 0.0
    assert model.seconds_per_row == pytest.approx(0.0005)


def test_it_follows_a_machine_that_gets_slower() -> None:
    model = CostModel()
    for scale in (1, 10):
        for index in range(300):
            rows = 1 + index % 16
            model.observe(rows, run_s=scale * (1e-3 + 1e-4 * rows))
    assert model.cost is not None
    assert model.cost.run_s(10) == pytest.approx(0.02, rel=0.1)


def test_one_hiccup_changes_little() -> None:
    model = CostModel()
    for index in range(100):
        model.observe(1 + index % 4, run_s=1e-3)
    model.observe(2, run_s=10.0)
    assert model.cost is not None
    assert model.cost.run_s(2) < 1.3e-3


def test_costs_are_never_negative() -> None:
    model = CostModel()
    for rows, run_s in ((1, 0.01), (100, 0.001), (0, 0.0), (0, 0.0)):
        model.observe(rows, run_s=run_s)
        assert model.cost is not None
        assert model.cost.fixed_s >= 0.0
        assert model.cost.per_row_s >= 0.0
