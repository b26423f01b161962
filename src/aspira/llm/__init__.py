"""The token engine: how sequences share a decoder and its KV cache, one step at a time."""
