"""Qwen3: Llama's layers, with each head of queries and keys normed before it is rotated."""

from aspira.llm.decoders.family import Family, Projected
from aspira.llm.decoders.graph import DecoderGraph, Node


def project(graph: DecoderGraph, hidden: Node, layer: str) -> Projected:
    query, key, value = graph.project_heads(hidden, layer=layer)
    query = graph.norm(query, name=f"{layer}.query_norm")
    key = graph.norm(key, name=f"{layer}.key_norm")
    return graph.rotate(query), graph.rotate(key), value


FAMILY = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    gguf_architecture="qwen3",
    has_interleaved_gguf=False,
    project=project,
)
