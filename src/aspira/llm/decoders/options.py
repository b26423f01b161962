"""How a decoder is run; no tensor library is imported to say so."""

from dataclasses import dataclass
from typing import Literal

Precision = Literal["auto", "f32", "bf16"]
CachePrecision = Literal["auto", "f32", "bf16", "u8"]
WeightFormat = Literal["auto", "int8"]


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """One field, one entry of a model's options file."""

    precision: Precision = "auto"
    """What is computed in. `auto`: bf16 where the CPU has instructions for it, f32 elsewhere."""

    cache_precision: CachePrecision = "auto"
    """What keys and values are kept in. `auto`: as `precision`."""

    weight_format: WeightFormat = "auto"
    """`int8`: matrices are rounded to 8 bits, with one scale a row. `auto`: as `precision`."""

    cache_mib: int = 1024
    """Memory for keys and values of all sequences. Pages are taken as they are first used."""

    num_threads: int = 0
    """Threads that compute; 0 means one per CPU."""
