"""How a decoder is run; no tensor library is imported to say so."""

from dataclasses import dataclass, replace
from typing import Literal

from aspira.contracts.errors import FailedPrecondition, InvalidArgument

Precision = Literal["auto", "f32", "bf16"]
CachePrecision = Literal["auto", "f32", "bf16", "u8"]
WeightFormat = Literal["auto", "f32", "bf16", "int8", "stored"]


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """One field, one entry of a model's options file."""

    precision: Precision = "auto"
    """What is computed in. `auto`: bf16 where the CPU has instructions for it, f32 elsewhere."""

    cache_precision: CachePrecision = "auto"
    """What keys and values are kept in. `auto`: as `precision`."""

    weight_format: WeightFormat = "auto"
    """What matrices are kept in. `int8`: rounded, 32 weights with a scale. `stored`: as a GGUF file
    has them, where that is Q4_0 or Q8_0. With these two OpenVINO also rounds what it multiplies
    them with to 8 bits. `auto`: as `precision`. An OpenVINO IR keeps what it has."""

    cache_mib: int = 1024
    """Memory for keys and values of all sequences. Pages are taken as they are first used."""

    num_threads: int = 0
    """Threads that compute; 0 means one per CPU."""

    compiled_sequences: int = 0
    """SavedModels alone: up to how many sequences a step of one token for each may have that is
    compiled with XLA, where it is measured to be faster so. Each number of them takes half a
    minute or so to load. 0 compiles nothing."""

    def __post_init__(self) -> None:
        if self.cache_mib < 1 or self.num_threads < 0 or self.compiled_sequences < 0:
            raise InvalidArgument(
                f"cache_mib ({self.cache_mib}) must be positive, num_threads "
                f"({self.num_threads}) and compiled_sequences ({self.compiled_sequences}) not "
                "negative"
            )

    def resolved(self, *, has_bfloat16: bool) -> "DecoderOptions":
        """The same with every `auto` decided; `has_bfloat16` is of the CPU.

        Raises:
            FailedPrecondition: the CPU cannot compute in what was asked for.
            InvalidArgument: OpenVINO cannot combine what was asked for.
        """
        if self.compiled_sequences:
            raise InvalidArgument(
                "compiled_sequences is for SavedModels; OpenVINO compiles once for all shapes, so "
                "remove it"
            )
        fastest: Precision = "bf16" if has_bfloat16 else "f32"
        precision = fastest if self.precision == "auto" else self.precision
        if precision == "bf16" and not has_bfloat16:
            raise FailedPrecondition(
                "This CPU has no instructions for bf16; set precision to auto or f32"
            )
        cache = precision if self.cache_precision == "auto" else self.cache_precision
        if cache not in (precision, "u8"):
            raise InvalidArgument(
                f"A decoder that computes in {precision} cannot have a {cache} cache; set "
                "cache_precision to auto or u8"
            )
        weights = precision if self.weight_format == "auto" else self.weight_format
        return replace(self, precision=precision, cache_precision=cache, weight_format=weights)
