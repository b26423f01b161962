"""What one decoder family is: its names in files, and what differs in its layers."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

# A value of the graph that is being built, of whatever framework.
Node: TypeAlias = Any
Heads: TypeAlias = tuple[Node, Node, Node]


class DecoderParts(Protocol):
    """The parts that a framework offers, as families put them together."""

    def project_heads(self, hidden: Node, *, layer: str, has_bias: bool = False) -> Heads:
        """Queries, keys and values of hidden states, by heads."""
        ...

    def norm(self, hidden: Node, *, name: str) -> Node:
        """Root mean square norm over the last axis."""
        ...

    def rotate(self, heads: Node) -> Node:
        """Turn each pair (first half, second half) of a head by its position's angle."""
        ...


class MakeHeads(Protocol):
    """Queries, keys and values as attention takes them, of normed hidden states, in a layer."""

    def __call__(self, parts: DecoderParts, *, hidden: Node, layer: str) -> Heads: ...


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

    make_heads: MakeHeads
