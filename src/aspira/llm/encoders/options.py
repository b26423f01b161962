"""How an encoder is run; no tensor library is imported to say so."""

from dataclasses import dataclass
from typing import Literal

from aspira.contracts.errors import InvalidArgument

EncoderPrecision = Literal["f32", "bf16"]


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """One field, one entry of `[encoder]` in a model's options file."""

    precision: EncoderPrecision = "f32"
    """What is computed in. Vectors are compared with those of an index, which were perhaps made
    elsewhere: f32 agrees with them to the fifth digit, bf16 to the second."""

    max_batch_texts: int = 32
    """Texts that share a run at most."""

    num_threads: int = 0
    """Threads that compute; 0 means one per CPU."""

    def __post_init__(self) -> None:
        if self.max_batch_texts < 1 or self.num_threads < 0:
            raise InvalidArgument(
                f"max_batch_texts ({self.max_batch_texts}) must be positive and num_threads "
                f"({self.num_threads}) not negative"
            )
