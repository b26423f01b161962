"""What each truncation leaves, found by drawing at every part of the distribution."""

import numpy as np
import numpy.typing as npt
import pytest

from aspira.contracts.generation import SamplingParameters
from aspira.llm.token_draw import draw_token, largest_ids, uniform_at

UNIFORMS = np.linspace(0, 1, 999, endpoint=False)


def logits_of(probabilities: list[float]) -> npt.NDArray[np.float32]:
    return np.log(np.array(probabilities, np.float32))


def drawable(probabilities: list[float], **parameters: float) -> set[int]:
    row = logits_of(probabilities)
    return {
        draw_token(row, parameters=SamplingParameters(**parameters), uniform=float(uniform))
        for uniform in UNIFORMS
    }


@pytest.mark.parametrize(
    ("parameters", "left"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 100}, {0, 1, 2, 3}),
        ({"top_p": 0.0}, {1}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.41}, {1, 3}),
        ({"top_p": 0.95}, {0, 1, 2, 3}),
        ({"min_p": 0.6}, {1, 3}),
        ({"min_p": 1.0}, {1}),
        ({"top_k": 3, "top_p": 0.5}, {1, 3}),
        ({"top_k": 3, "min_p": 0.6}, {1, 3}),
        ({"temperature": 0.01}, {1}),
        # With min-p first, token 1 is more than half of what it leaves.
        ({"min_p": 0.6, "top_p": 0.55}, {1}),
    ],
)
def test_what_is_left(parameters: dict[str, float], left: set[int]) -> None:
    assert drawable([0.1, 0.4, 0.2, 0.3], **parameters) == left


def test_temperature_flattens() -> None:
    def share_of_first(temperature: float) -> float:
        row = logits_of([0.8, 0.2])
        parameters = SamplingParameters(temperature=temperature)
        drawn = [draw_token(row, parameters=parameters, uniform=float(u)) for u in UNIFORMS]
        return drawn.count(0) / len(drawn)

    assert share_of_first(1.0) == pytest.approx(0.8, abs=0.01)
    assert share_of_first(2.0) == pytest.approx(2 / 3, abs=0.01)
    assert share_of_first(0.5) == pytest.approx(16 / 17, abs=0.01)


@pytest.mark.parametrize("parameters", [{}, {"min_p": 1e-4}, {"top_p": 0.999}])
def test_a_wide_distribution_is_drawn_from_exactly(parameters: dict[str, float]) -> None:
    """Wider than the first look for a nucleus and than one part of the sums."""
    size = 5000
    row = np.zeros(size, np.float32)
    drawn = sorted(
        draw_token(row, parameters=SamplingParameters(**parameters), uniform=float(uniform))
        for uniform in UNIFORMS
    )
    assert len(set(drawn)) == len(UNIFORMS)
    assert np.allclose(np.diff(drawn), size / len(UNIFORMS), atol=1.01)


def test_the_nucleus_is_that_of_a_full_sort() -> None:
    rng = np.random.default_rng(1)
    row = rng.standard_normal(4000).astype(np.float32)
    probabilities = np.exp(row.astype(np.float64))
    probabilities /= probabilities.sum()
    order = np.argsort(-probabilities)
    for top_p in (0.1, 0.5, 0.9):
        size = int(np.searchsorted(np.cumsum(probabilities[order]), top_p)) + 1
        parameters = SamplingParameters(top_p=top_p)
        last = draw_token(row, parameters=parameters, uniform=1 - 1e-9)
        assert abs(int(np.flatnonzero(order == last)[0]) - (size - 1)) <= 1


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_tokens_without_probability_are_never_drawn(uniform: float) -> None:
    row = np.full(2000, -np.inf, np.float32)
    row[[300, 900]] = 0.0
    token = draw_token(row, parameters=SamplingParameters(), uniform=uniform)
    assert token in {300, 900}


def test_the_largest_come_first() -> None:
    row = np.array([1, 4, 2, 3, 0], np.float32)
    assert largest_ids(row, count=3).tolist() == [1, 3, 2]
    assert largest_ids(row, count=9).tolist() == [1, 3, 2, 0, 4]


def test_uniform_numbers_depend_on_seed_choice_and_position() -> None:
    draws = [
        uniform_at((seed, choice), position=position)
        for seed in (0, 2**64 - 1)
        for choice in range(3)
        for position in range(50)
    ]
    assert len(set(draws)) == len(draws)
    assert all(0 <= draw < 1 for draw in draws)
    assert np.mean(draws) == pytest.approx(0.5, abs=0.06)
    assert uniform_at((7, 1), position=3) == uniform_at((7, 1), position=3)
