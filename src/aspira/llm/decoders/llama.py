"""Llama, and what has its shape: SmolLM, Mistral. Plain projections, all heads rotated."""

from aspira.llm.decoders.family import Family, Projected
from aspira.llm.decoders.graph import DecoderGraph, Node


def project(graph: DecoderGraph, hidden: Node, layer: str) -> Projected:
    query, key, value = graph.project_heads(hidden, layer=layer)
    return graph.rotate(query), graph.rotate(key), value


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM", "MistralForCausalLM"),
    gguf_architecture="llama",
    has_interleaved_gguf=True,
    project=project,
)
