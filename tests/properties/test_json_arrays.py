"""Whatever the body, reading it in pieces gives what the general reader gives, errors and all."""

import json
from collections.abc import Callable, Iterator

import hypothesis.extra.numpy as numpy_strategies
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aspira.contracts.errors import ServingError
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.contracts.tensors import DataType
from aspira.frontends.rest import json_arrays, json_tensors
from aspira.frontends.rest.json_tensors import (
    InferenceBody,
    decode_inputs,
    parse_inference_body,
    parse_predict_body,
)

DTYPES = st.sampled_from(
    [DataType.FLOAT, DataType.DOUBLE, DataType.INT64, DataType.UINT8, DataType.UINT64]
)
NUMBERS = st.one_of(
    numpy_strategies.arrays(
        np.float64,
        numpy_strategies.array_shapes(max_dims=4, max_side=3),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    numpy_strategies.arrays(np.int64, numpy_strategies.array_shapes(max_dims=4, max_side=3)),
)
MARKS = st.sampled_from(
    [b"[", b"]", b",", b"[]", b"],[", b" ", b"0", b"-", b".", b"e", b'"', b"{", b"}", b":",
     b"null", b"true", b"NaN", b'"x"', b"1.5"]
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Everything counts as large, and is read a few numbers at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_arrays, "MIN_ARRAY_BYTES", 1)
        patch.setattr(json_tensors, "MIN_ARRAY_BYTES", 1)
        patch.setattr(json_arrays, "_BYTES_PER_QUOTE", 0)
        patch.setattr(json_arrays, "_PIECE_BYTES", 9)
        yield


def outcome(
    parse: Callable[[bytes], InferenceBody], *, body: bytes, signature: Signature
) -> object:
    try:
        decoded = decode_inputs(parse(body), signature=signature)
    except ServingError as error:
        return error.code, error.message
    inputs = {n: (t.dtype, t.shape, t.tobytes()) for n, t in decoded.inputs.items()}
    return inputs, decoded.is_row_format


def assert_same(body: bytes, signature: Signature) -> None:
    in_pieces = outcome(parse_predict_body, body=body, signature=signature)
    assert in_pieces == outcome(parse_inference_body, body=body, signature=signature)


@given(x=NUMBERS, y=NUMBERS, dtype=DTYPES, indent=st.sampled_from([None, 0]))
@pytest.mark.parametrize("kind", ["instances", "inputs", "named rows", "named inputs"])
def test_arrays(
    kind: str, x: np.ndarray, y: np.ndarray, dtype: DataType, indent: int | None
) -> None:
    document = {
        "instances": {"instances": x.tolist()},
        "inputs": {"signature_name": "a", "inputs": x.tolist()},
        "named rows": {"instances": [{"x": x.tolist()}, {"x": y.tolist()}]},
        "named inputs": {"inputs": {"x": x.tolist(), "y": y.tolist()}},
    }[kind]
    specs = {name: TensorSpec(dtype, None) for name in ("xy" if kind == "named inputs" else "x")}
    assert_same(json.dumps(document, indent=indent).encode(), Signature(specs, {}))


@given(x=NUMBERS, dtype=DTYPES, edits=st.lists(st.tuples(st.integers(0, 80), MARKS), max_size=2))
@pytest.mark.parametrize("num_bytes_lost", [0, 1])
def test_damaged_arrays(
    num_bytes_lost: int, x: np.ndarray, dtype: DataType, edits: list[tuple[int, bytes]]
) -> None:
    body = json.dumps({"instances": x.tolist()}).encode()
    for at, mark in edits:
        place = 14 + at % len(body)
        body = body[:place] + mark + body[place + num_bytes_lost :]
    assert_same(body, Signature({"x": TensorSpec(dtype, None)}, {}))
