"""Qwen3: Llama's layers, with each head of queries and keys normed before it is rotated."""

from aspira.llm.decoders.family import DecoderParts, Family, Heads, Node


def _make_heads(parts: DecoderParts, *, hidden: Node, layer: str) -> Heads:
    query, key, value = parts.project_heads(hidden, layer=layer)
    query = parts.norm(query, name=f"{layer}.query_norm")
    key = parts.norm(key, name=f"{layer}.key_norm")
    return parts.rotate(query), parts.rotate(key), value


FAMILY = Family(
    name="qwen3",
    architectures=("Qwen3ForCausalLM",),
    gguf_architecture="qwen3",
    has_interleaved_gguf=False,
    make_heads=_make_heads,
)
