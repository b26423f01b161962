"""What the builder of a decoder asks of the files that hold its weights.

Names are ours, whatever the file calls them: `embedding`, `final_norm`, `head`,
`rotary_factors`, and for layer 0 `layers.0.attention_norm`, `.query`, `.key`, `.value`,
`.query_norm`, `.key_norm`, `.attention_output`, `.mlp_norm`, `.gate`, `.up`, `.down`; each with
`.weight` or `.bias` at its end. A matrix is [outputs, inputs].
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy.typing as npt

from aspira.llm.weights.packed import PackedMatrix

# float32, float16 or ml_dtypes' bfloat16.
Weight = npt.NDArray[Any]


class Weights(Protocol):
    """The weights of one model. Reading one costs memory for that one only."""

    @property
    def digest(self) -> str:
        """Names the bytes of the files: equal for equal weights."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str) -> Weight:
        """One tensor.

        Raises:
            DataLoss: it is not in the files.
        """
        ...

    def read_packed(self, name: str) -> PackedMatrix | None:
        """One matrix as it is stored; None where that is not one of packed integers."""
        ...


def name_in_file(name: str, *, names: Mapping[str, str], layer_prefix: str) -> str:
    """What a file calls one of our names; `names` maps its part without layer and ending."""
    stem, _, ending = name.rpartition(".")
    if not stem.startswith("layers."):
        return f"{names[stem]}.{ending}"
    _, layer, part = stem.split(".")
    return f"{layer_prefix}{layer}.{names[part]}.{ending}"
