"""Writes classifications and regressions as JSON, byte for byte in the reference's layout."""

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.examples import Classifications, Regressions
from aspira.frontends.rest.json_numbers import encode_number_rows
from aspira.frontends.rest.json_response import quote_string

_SEPARATOR = b", "


def encode_classifications(result: Classifications) -> bytes:
    """The body that answers a classify request: per example, pairs of a label and a score.

    Raises:
        InvalidArgument: there are none.
    """
    num_examples, num_classes = result.scores.shape
    if not num_examples:
        raise InvalidArgument("Cannot convert empty ClassificationResults to JSON")
    scores = encode_number_rows(result.scores.reshape(-1, 1), separator=_SEPARATOR)
    classes = [
        b"[" + quote_string(label) + _SEPARATOR + score + b"]"
        for label, score in zip(result.labels.ravel().tolist(), scores, strict=True)
    ]
    examples = [
        b"[" + _SEPARATOR.join(classes[num_classes * index :][:num_classes]) + b"]"
        for index in range(num_examples)
    ]
    return b'{\n    "results": [' + _SEPARATOR.join(examples) + b"\n    ]\n}"


def encode_regressions(result: Regressions) -> bytes:
    """The body that answers a regress request: a value per example.

    Raises:
        InvalidArgument: there are none.
    """
    if not result.values.size:
        raise InvalidArgument("Cannot convert empty RegressionResults to JSON")
    (values,) = encode_number_rows(result.values.reshape(1, -1), separator=_SEPARATOR)
    return b'{\n    "results": [' + values + b"]\n}"
