"""The functions that a decoder's SavedModel has, traced once each for arrays of any length.

`step` and what handles the cache are this server's; `generate_step` anybody's, as a plain
prediction.
"""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.family import Node
from aspira.llm.saved_decoders.decoder import Decoder
from aspira.llm.saved_decoders.session import (
    GENERATE_STEP,
    INIT_CACHE,
    READ_BLOCKS,
    SERVING_DEFAULT,
    STEP,
    STEP_COMPILED,
    WRITE_BLOCKS,
)
from aspira.llm.saved_decoders.step_inputs import (
    BLOCK_SIZE,
    SPAN_BLOCKS,
    STEP_RANKS,
    StepInputs,
)

Signatures = Mapping[str, Any]


def make_signatures(decoder: Decoder, *, config: DecoderConfig) -> Signatures:
    """By name. Each has one output."""
    generate_step = _trace(
        lambda input_ids: {"predicted_id": decoder.next_tokens(input_ids)},
        input_ids=tf.TensorSpec([None, None], tf.int64),
    )

    def step(**inputs: Node) -> Mapping[str, Node]:
        return {"logits": decoder.step(StepInputs(**inputs))}

    return {
        STEP: _trace(step, **_step_specs()),
        STEP_COMPILED: _trace(
            tf.function(step, autograph=False, jit_compile=True), **_step_specs()
        ),
        GENERATE_STEP: generate_step,
        SERVING_DEFAULT: generate_step,
        **_cache_signatures(_CacheFunctions(decoder, config=config)),
    }


def _cache_signatures(cache: "_CacheFunctions") -> Signatures:
    block_ids = tf.TensorSpec([None], tf.int32)
    blocks = tf.TensorSpec([None, *cache.block_shape], cache.dtype)
    return {
        INIT_CACHE: _trace(cache.init, num_blocks=tf.TensorSpec([], tf.int32)),
        READ_BLOCKS: _trace(cache.read, block_ids=block_ids),
        WRITE_BLOCKS: _trace(cache.write, block_ids=block_ids, blocks=blocks),
    }


class _CacheFunctions:
    """Over the caches of all layers: `blocks` are [blocks, layers * 2, ...], keys before values."""

    def __init__(self, decoder: Decoder, *, config: DecoderConfig) -> None:
        self._caches = [cache for pair in decoder.variables.caches for cache in pair]
        self._num_heads = config.num_kv_heads
        self._head_shape = (BLOCK_SIZE, config.head_size)
        self.block_shape = (len(self._caches), config.num_kv_heads, *self._head_shape)
        self.dtype = self._caches[0].dtype

    def init(self, num_blocks: Node) -> Mapping[str, Node]:
        """Give all caches this size.

        Memory is taken as it is first written to. A step clears a block whose first place it
        writes, so what others left there is never seen.
        """
        shape = tf.stack([num_blocks * self._num_heads, *self._head_shape])
        for cache in self._caches:
            cache.assign(tf.raw_ops.Empty(shape=shape, dtype=self.dtype, init=False))
        return {"num_blocks": tf.identity(num_blocks)}

    def read(self, block_ids: Node) -> Mapping[str, Node]:
        rows = self._rows(block_ids)
        return {"blocks": tf.stack([tf.gather(cache, rows) for cache in self._caches], axis=1)}

    def write(self, block_ids: Node, *, blocks: Node) -> Mapping[str, Node]:
        rows = tf.reshape(self._rows(block_ids), [-1])
        for index, cache in enumerate(self._caches):
            content = tf.reshape(blocks[:, index], [-1, *self._head_shape])
            cache.scatter_update(tf.IndexedSlices(content, rows))
        return {"num_blocks": tf.size(block_ids)}

    def _rows(self, block_ids: Node) -> Node:
        return block_ids[:, tf.newaxis] * self._num_heads + tf.range(self._num_heads)


def _step_specs() -> Mapping[str, Any]:
    shapes = StepInputs(*([None] * rank for rank in STEP_RANKS))
    shapes = shapes._replace(span_blocks=[None, SPAN_BLOCKS])
    return {name: tf.TensorSpec(shape, tf.int32) for name, shape in shapes._asdict().items()}


def _trace(compute: Callable[..., Any], **specs: Any) -> Any:
    return tf.function(compute, autograph=False).get_concrete_function(**specs)
