import pytest

from aspira.llm.step_plan import share_prefill


@pytest.mark.parametrize(
    ("missing", "budget", "shares"),
    [
        pytest.param([], 100, [], id="nobody"),
        pytest.param([30], 100, [30], id="all there is to do"),
        pytest.param([1000], 100, [100], id="one has it all"),
        pytest.param([1000, 20], 100, [80, 20], id="a short one does not wait"),
        pytest.param([1000, 20, 40], 100, [50, 20, 30], id="the shortest goes first"),
        pytest.param([1000, 900], 100, [50, 50], id="the younger long one gets on too"),
        pytest.param([60, 60, 60], 100, [60, 40, 0], id="among equals the older goes whole"),
        pytest.param([1000, 5, 5, 5], 4, [2, 2, 0, 0], id="a small budget"),
        pytest.param([1000, 5], 0, [0, 0], id="no budget"),
        pytest.param([3, 3], 1, [1, 0], id="one token"),
    ],
)
def test_the_oldest_has_half_and_the_shortest_the_rest(
    missing: list[int], budget: int, shares: list[int]
) -> None:
    assert share_prefill(missing, budget=budget) == shares
