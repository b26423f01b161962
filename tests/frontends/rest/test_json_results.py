"""Bodies of answers, byte for byte."""

import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.examples import Classifications, Regressions
from aspira.frontends.rest.json_results import encode_classifications, encode_regressions
from example_toys import floats, strings


@pytest.mark.parametrize(
    ("labels", "scores", "body"),
    [
        (strings([b""]), floats([3]), b'{\n    "results": [[["", 3.0]]\n    ]\n}'),
        (
            strings([b"a", b"b"], [b"c", b"d"]),
            floats([0.1, 1 / 3], [1e10, np.nan]),
            (
                b'{\n    "results": [[["a", 0.1], ["b", 0.333333343]], '
                b'[["c", 1e+10], ["d", NaN]]\n    ]\n}'
            ),
        ),
        (
            strings([b'"\n\xff']),
            floats([-0.0]),
            b'{\n    "results": [[["\\"\\n\xff", -0.0]]\n    ]\n}',
        ),
        (
            np.zeros((2, 0), object),
            np.zeros((2, 0), np.float32),
            b'{\n    "results": [[], []\n    ]\n}',
        ),
    ],
)
def test_classifications(labels: np.ndarray, scores: np.ndarray, body: bytes) -> None:
    assert encode_classifications(Classifications(labels, scores)) == body


@pytest.mark.parametrize(
    ("values", "body"),
    [
        (floats(3), b'{\n    "results": [3.0]\n}'),
        (floats(3, 3.5, 1 / 3), b'{\n    "results": [3.0, 3.5, 0.333333343]\n}'),
        (floats(np.inf, -np.inf, np.nan), b'{\n    "results": [Infinity, -Infinity, NaN]\n}'),
    ],
)
def test_regressions(values: np.ndarray, body: bytes) -> None:
    assert encode_regressions(Regressions(values)) == body


def test_results_of_nothing() -> None:
    with pytest.raises(InvalidArgument) as caught:
        encode_classifications(Classifications(np.zeros((0, 2), object), np.zeros((0, 2))))
    assert caught.value.message == "Cannot convert empty ClassificationResults to JSON"
    with pytest.raises(InvalidArgument) as caught:
        encode_regressions(Regressions(floats()))
    assert caught.value.message == "Cannot convert empty RegressionResults to JSON"
