"""Qwen2 and Qwen2.5: Llama's layers, with biases on queries, keys and values."""

from aspira.llm.decoders.family import DecoderParts, Family, Heads, Node


def _make_heads(parts: DecoderParts, *, hidden: Node, layer: str) -> Heads:
    query, key, value = parts.project_heads(hidden, layer=layer, has_bias=True)
    return parts.rotate(query), parts.rotate(key), value


FAMILY = Family(
    name="qwen2",
    architectures=("Qwen2ForCausalLM",),
    gguf_architecture="qwen2",
    has_interleaved_gguf=False,
    make_heads=_make_heads,
)
