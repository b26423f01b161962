"""What one decoder family is: its names in files, and what differs in its layers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from aspira.llm.decoders.graph import DecoderGraph, Node

Projected: TypeAlias = tuple[Node, Node, Node]
Projection: TypeAlias = Callable[[DecoderGraph, Node, str], Projected]


@dataclass(frozen=True, slots=True)
class Family:
    """One file of this package makes one of these."""

    name: str

    architectures: tuple[str, ...]
    """As `config.json` calls them."""

    gguf_architecture: str
    """As `general.architecture` calls it."""

    has_interleaved_gguf: bool
    """GGUF files have the rows of queries and keys in the order that llama.cpp rotates them."""

    project: Projection
    """Queries, keys and values of the normed hidden states of the layer named, rotated."""
