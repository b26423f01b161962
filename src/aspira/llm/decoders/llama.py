"""Llama, and what has its shape: SmolLM, Mistral. Plain projections, all heads rotated."""

from aspira.llm.decoders.family import DecoderParts, Family, Heads, Node


def _make_heads(parts: DecoderParts, *, hidden: Node, layer: str) -> Heads:
    query, key, value = parts.project_heads(hidden, layer=layer)
    return parts.rotate(query), parts.rotate(key), value


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM", "MistralForCausalLM"),
    gguf_architecture="llama",
    has_interleaved_gguf=True,
    make_heads=_make_heads,
)
