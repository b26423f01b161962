"""Qwen2 and Qwen2.5: Llama's layers, with biases on queries, keys and values."""

from aspira.llm.decoders.family import Family, Projected
from aspira.llm.decoders.graph import DecoderGraph, Node


def project(graph: DecoderGraph, hidden: Node, layer: str) -> Projected:
    query, key, value = graph.project_heads(hidden, layer=layer, has_bias=True)
    return graph.rotate(query), graph.rotate(key), value


FAMILY = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    gguf_architecture="qwen2",
    has_interleaved_gguf=False,
    project=project,
)
