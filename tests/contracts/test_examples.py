import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.examples import check_examples


def test_no_examples_are_refused() -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_examples(np.empty(0, object))
    assert caught.value.message == "Input is empty."


def test_an_empty_example_is_one() -> None:
    check_examples(np.array([b""], object))
