from dataclasses import replace

import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.llm.decoders.config import DecoderConfig, Rotary, rotary_frequencies
from numpy_decoder import frequencies

CONFIG = DecoderConfig(
    family="llama",
    num_layers=2,
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_size=16,
    vocab_size=61,
    max_context=256,
    norm_epsilon=1e-5,
    rotary=Rotary(theta=10000.0),
    has_tied_head=True,
)


@pytest.mark.parametrize(
    "rotary",
    [
        Rotary(theta=10000.0),
        Rotary(theta=1e6, kind="linear", factor=2.0),
        Rotary(theta=5e5, kind="llama3", factor=8.0, original_context=64),
        Rotary(theta=5e5, kind="llama3", factor=32.0, original_context=8192),
    ],
)
def test_frequencies_follow_the_papers(rotary: Rotary) -> None:
    config = replace(CONFIG, rotary=rotary)
    np.testing.assert_allclose(rotary_frequencies(config), frequencies(config), rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num_layers": 0}, "number of layers is 0"),
        ({"vocab_size": -1}, "vocabulary is -1"),
        ({"num_kv_heads": 3}, "4 heads cannot share 3"),
        ({"head_size": 15}, "head size 15 is odd"),
        ({"norm_epsilon": 0.0}, "must be positive"),
        ({"rotary": Rotary(theta=0.0)}, "must be positive"),
    ],
)
def test_numbers_that_make_no_decoder(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        replace(CONFIG, **wrong)  # type: ignore[arg-type]
