"""The numbers that say what a decoder looks like, whatever file they came from."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from aspira.contracts.errors import InvalidArgument

RotaryKind = Literal["default", "linear", "llama3"]


@dataclass(frozen=True, slots=True)
class Rotary:
    """How positions turn queries and keys."""

    theta: float
    """The base of the geometric sequence of wavelengths."""

    kind: RotaryKind = "default"
    """How it is stretched to contexts longer than those of the first training."""

    factor: float = 1.0
    """`linear` and `llama3`: by how much."""

    low_frequency_factor: float = 1.0
    """`llama3`: wavelengths over `original_context / this` are stretched by the whole factor."""

    high_frequency_factor: float = 4.0
    """`llama3`: wavelengths under `original_context / this` are left alone."""

    original_context: int = 8192
    """`llama3`: the context of the first training."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """One decoder-only transformer with rotary positions, RMS norms and a gated MLP."""

    family: str
    """The name of a file in `aspira.llm.decoders`."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int

    max_context: int
    """The most tokens, prompt and answer, that it was made for."""

    norm_epsilon: float
    rotary: Rotary

    has_tied_head: bool
    """The embedding is also the matrix that makes logits."""

    def __post_init__(self) -> None:
        sizes = {
            "number of layers": self.num_layers,
            "hidden size": self.hidden_size,
            "intermediate size": self.intermediate_size,
            "number of heads": self.num_heads,
            "number of key and value heads": self.num_kv_heads,
            "head size": self.head_size,
            "vocabulary": self.vocab_size,
            "context length": self.max_context,
        }
        for name, size in sizes.items():
            if size <= 0:
                raise InvalidArgument(f"The model's {name} is {size}; it must be positive")
        if self.num_heads % self.num_kv_heads:
            raise InvalidArgument(
                f"The model's {self.num_heads} heads cannot share {self.num_kv_heads} key and "
                "value heads evenly"
            )
        if self.head_size % 2:
            raise InvalidArgument(
                f"The model's head size {self.head_size} is odd; rotary needs pairs"
            )
        if not (self.norm_epsilon > 0 and self.rotary.theta > 0 and self.rotary.factor > 0):
            raise InvalidArgument(
                "The model's norm epsilon, rope theta and factor must be positive"
            )


def rotary_frequencies(config: DecoderConfig) -> npt.NDArray[np.float64]:
    """Radians that one position turns each pair of a head by, [head_size / 2].

    `llama3` follows Meta's `apply_scaling`: long wavelengths are stretched, short ones kept, those
    between interpolated.
    """
    rotary = config.rotary
    exponents = np.arange(0, config.head_size, 2, dtype=np.float64) / config.head_size
    frequencies = rotary.theta**-exponents
    if rotary.kind != "llama3":
        return frequencies / rotary.factor
    turns = rotary.original_context * frequencies / (2 * math.pi)
    span = rotary.high_frequency_factor - rotary.low_frequency_factor
    kept = np.clip((turns - rotary.low_frequency_factor) / span, 0.0, 1.0)
    return frequencies * (kept + (1 - kept) / rotary.factor)
