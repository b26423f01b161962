"""Attention in TensorFlow: over a paged cache that is written in place, and over whole rows.

Queries are [tokens, heads, head size], keys and values [tokens, key and value heads, head size].
"""

from typing import Any, Protocol

import tensorflow as tf

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.decoders.family import Node
from aspira.llm.saved_decoders.step_inputs import (
    BLOCK_SIZE,
    SPAN_BLOCKS,
    SPAN_TOKENS,
    StepInputs,
)

_HIDDEN = -1e30
"""Added to the score of a key that a query must not see. Finite: padding sees no key at all."""


class Attention(Protocol):
    """How the tokens of one call look at each other."""

    def attend(self, index: int, *, query: Node, key: Node, value: Node) -> Node:
        """In layer `index`; returns [tokens, heads * head size]."""
        ...


class PagedAttention:
    """Over the cache of each sequence, to which keys and values of the step are added first.

    A cache is a variable [blocks * key and value heads, `BLOCK_SIZE`, head size]. It is only ever
    scattered into and gathered from: TensorFlow copies the whole of what is read otherwise.
    """

    def __init__(self, config: DecoderConfig, *, inputs: StepInputs, caches: Any) -> None:
        self._config = config
        self._inputs = inputs
        self._caches = caches
        self._written = self._places_of_tokens()
        self._cleared = tf.reshape(self._rows_of(inputs.fresh_blocks), [-1])
        self._read = tf.transpose(self._rows_of(inputs.span_blocks), [0, 2, 1])
        self._bias = self._hidden_keys()

    def attend(self, index: int, *, query: Node, key: Node, value: Node) -> Node:
        """See `Attention`."""
        keys, values = (
            self._extended(cache, tokens=tf.cast(tokens, cache.dtype))
            for cache, tokens in zip(self._caches[index], (key, value), strict=True)
        )
        queries = self._queries_of_spans(tf.cast(query, keys.dtype))
        scores = tf.matmul(queries, keys, transpose_b=True)
        weights, totals = self._softmax(scores)
        sums = tf.matmul(weights, values)
        return self._tokens_of_spans(sums, totals=totals)

    def _extended(self, cache: Any, *, tokens: Node) -> Node:
        """Keys or values of spans, [P, key and value heads, `SPAN_TOKENS`, head size]."""
        config = self._config
        nothing = tf.zeros([tf.size(self._cleared), BLOCK_SIZE, config.head_size], cache.dtype)
        cache.scatter_update(tf.IndexedSlices(nothing, self._cleared))
        cache.scatter_nd_update(self._written, tokens)
        blocks = tf.gather(cache, self._read)
        return tf.reshape(blocks, [-1, config.num_kv_heads, SPAN_TOKENS, config.head_size])

    def _queries_of_spans(self, query: Node) -> Node:
        """[P, key and value heads, queries of a group and tile, head size]."""
        config = self._config
        tiles = tf.gather(query * config.head_size**-0.5, self._inputs.tile_tokens)
        by_head = tf.transpose(tiles, [0, 2, 1, 3])
        num_queries = config.num_heads // config.num_kv_heads * self._tile_size
        grouped = tf.reshape(by_head, [-1, config.num_kv_heads, num_queries, config.head_size])
        return tf.gather(grouped, self._inputs.span_tiles)

    def _softmax(self, scores: Node) -> tuple[Node, Node]:
        """Weights that are yet to be divided by the totals [N, heads, Q] of their tiles."""
        config, spans = self._config, self._inputs.span_tiles
        by_query = [-1, config.num_heads, self._tile_size, SPAN_TOKENS]
        biased = tf.reshape(tf.cast(scores, tf.float32), by_query) + self._bias
        largest = tf.math.unsorted_segment_max(tf.reduce_max(biased, -1), spans, self._num_tiles)
        weights = tf.exp(biased - tf.gather(largest, spans)[..., tf.newaxis])
        totals = tf.math.unsorted_segment_sum(tf.reduce_sum(weights, -1), spans, self._num_tiles)
        return tf.reshape(tf.cast(weights, scores.dtype), tf.shape(scores)), totals

    def _tokens_of_spans(self, sums: Node, *, totals: Node) -> Node:
        config, inputs = self._config, self._inputs
        by_query = [-1, config.num_heads, self._tile_size, config.head_size]
        spans = tf.reshape(tf.cast(sums, tf.float32), by_query)
        tiles = tf.math.unsorted_segment_sum(spans, inputs.span_tiles, self._num_tiles)
        shares = tf.transpose(tiles / totals[..., tf.newaxis], [0, 2, 1, 3])
        rows = tf.reshape(shares, [-1, config.num_heads * config.head_size])
        return tf.gather(rows, inputs.token_tiles)

    @property
    def _num_tiles(self) -> Node:
        return tf.shape(self._inputs.tile_tokens)[0]

    @property
    def _tile_size(self) -> Node:
        return tf.shape(self._inputs.tile_tokens)[1]

    def _rows_of(self, blocks: Node) -> Node:
        """A cache's rows of these blocks, one for each head, as the last axis."""
        heads = tf.range(self._config.num_kv_heads)
        return blocks[..., tf.newaxis] * self._config.num_kv_heads + heads

    def _places_of_tokens(self) -> Node:
        """[T, key and value heads, 2]: a cache's row, and the place in it."""
        rows = self._rows_of(self._inputs.slots // BLOCK_SIZE)
        places = tf.broadcast_to((self._inputs.slots % BLOCK_SIZE)[:, tf.newaxis], tf.shape(rows))
        return tf.stack([rows, places], axis=-1)

    def _hidden_keys(self) -> Node:
        """[P, 1, Q, `SPAN_TOKENS`], to be added to scores: a query sees no key after it."""
        inputs = self._inputs
        queries = tf.gather(tf.gather(inputs.positions, inputs.tile_tokens), inputs.span_tiles)
        keys = inputs.span_begins[:, tf.newaxis] + tf.range(SPAN_TOKENS)
        is_hidden = keys[:, tf.newaxis, :] > queries[..., tf.newaxis]
        return (tf.cast(is_hidden, tf.float32) * _HIDDEN)[:, tf.newaxis]


class RowAttention:
    """Over whole rows of equal length without a cache: the tokens are `num_rows` rows, flat."""

    def __init__(self, config: DecoderConfig, *, num_rows: Node) -> None:
        self._config = config
        self._num_rows = num_rows

    def attend(self, index: int, *, query: Node, key: Node, value: Node) -> Node:  # noqa: ARG002
        """See `Attention`."""
        config = self._config
        group = config.num_heads // config.num_kv_heads
        queries = self._by_head(query * config.head_size**-0.5)
        keys, values = (tf.repeat(self._by_head(part), group, axis=1) for part in (key, value))
        scores = tf.cast(tf.matmul(queries, keys, transpose_b=True), tf.float32)
        length = tf.shape(scores)[-1]
        seen = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        shares = tf.nn.softmax(scores + (1 - seen) * _HIDDEN)
        rows = tf.matmul(tf.cast(shares, values.dtype), values)
        return tf.reshape(
            tf.transpose(rows, [0, 2, 1, 3]), [-1, config.num_heads * config.head_size]
        )

    def _by_head(self, tokens: Node) -> Node:
        num_heads, head_size = tokens.shape[1:]
        rows = tf.reshape(tokens, [self._num_rows, -1, num_heads, head_size])
        return tf.transpose(rows, [0, 2, 1, 3])


assert SPAN_BLOCKS * BLOCK_SIZE == SPAN_TOKENS
