import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aspira.llm.encoders.lengths import group_by_length


def test_short_texts_are_not_run_with_long_ones() -> None:
    groups = group_by_length([3, 500, 20, 32, 80, 260])
    assert [group.tolist() for group in groups] == [[0, 2, 3], [4], [5, 1]]


@given(st.lists(st.integers(1, 1000), max_size=50))
def test_every_row_is_in_one_group_and_padding_is_bounded(lengths: list[int]) -> None:
    groups = group_by_length(lengths)
    rows = [row for group in groups for row in group.tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    for group in groups:
        found = np.array(lengths)[group]
        assert found.max() <= max(2 * found.min(), 32)
