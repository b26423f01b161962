"""Who has which block of the KV cache, and which blocks hold a prefix that others can use again.

A block is free, held by sequences (counted), or cached: held by nobody, its content still known
under a key. Together these are all blocks, after every call. A full block's key says everything
its content follows from; only full blocks have keys, so no shared block is ever written to.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from aspira.contracts.errors import Internal

Digest = Callable[[bytes], bytes]

_DIGEST_BYTES = 16


class BlockKey(NamedTuple):
    """What a full block holds: its tokens, after those that `parent` stands for."""

    digest: bytes
    parent: bytes
    tokens: tuple[int, ...]


def blake2b_digest(data: bytes) -> bytes:
    """128 bits that do not differ between processes, so that caches can be shared."""
    return blake2b(data, digest_size=_DIGEST_BYTES, person=b"block").digest()


def root_of(salt: str) -> bytes:
    """The parent of first blocks. Different salts never share a block.

    Hashed as `person` a salt: no salt, whoever chose it, is another block's parent.
    """
    return blake2b(salt.encode(), digest_size=_DIGEST_BYTES, person=b"salt").digest()


def child_key(
    parent: bytes, *, tokens: tuple[int, ...], digest: Digest = blake2b_digest
) -> BlockKey:
    """The key of the block with `tokens` that follows the block of digest `parent`."""
    data = struct.pack(f"<{len(tokens)}q", *tokens)
    return BlockKey(digest(parent + data), parent, tokens)


class KvBlocks:
    """The blocks of one runner. Plain bookkeeping for one thread; the cache itself is elsewhere."""

    def __init__(self, num_blocks: int, *, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_evictions = 0
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._num_holders = [0] * num_blocks
        self._keys: dict[int, BlockKey] = {}
        self._by_digest: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_available

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` could give."""
        return len(self._free) + len(self._cached)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that have room for as many tokens."""
        return -(-num_tokens // self.block_size)

    def match(self, keys: Iterable[BlockKey]) -> list[int]:
        """The blocks that hold the longest known beginning of a chain. Changes nothing."""
        return list(self._matches(keys))

    def num_unheld(self, block_ids: Iterable[int]) -> int:
        """How many of these, once acquired, `allocate` can give no more."""
        return sum(block_id in self._cached for block_id in block_ids)

    def acquire(self, block_ids: Iterable[int]) -> None:
        """Hold blocks that `match` found."""
        for block_id in block_ids:
            self._cached.pop(block_id, None)
            self._num_holders[block_id] += 1

    def allocate(self, count: int) -> list[int]:
        """Hold as many blocks of unknown content; the least recently used cached ones go.

        Raises:
            Internal: the caller did not see to `num_available`.
        """
        if count > self.num_available:
            raise Internal(f"{count} blocks wanted, {self.num_available} there")
        while len(self._free) < count:
            self._evict_oldest()
        block_ids = [self._free.pop() for _ in range(count)]
        for block_id in block_ids:
            self._num_holders[block_id] = 1
        return block_ids

    def release(self, block_ids: Sequence[int]) -> None:
        """Give up holding a sequence's blocks, which are in its order: tails are evicted first."""
        for block_id in reversed(block_ids):
            if self._num_holders[block_id] <= 0:
                raise Internal(f"Block {block_id} was released more often than it was held")
            self._num_holders[block_id] -= 1
            if self._num_holders[block_id] == 0:
                self._put_away(block_id)

    def register(self, block_id: int, *, key: BlockKey) -> None:
        """Say what a held block holds, now that it is full. A second copy stays unknown."""
        if key.digest not in self._by_digest and block_id not in self._keys:
            self._by_digest[key.digest] = block_id
            self._keys[block_id] = key

    def forget(self, block_ids: Iterable[int]) -> None:
        """Their content is not to be used again by others; who holds them keeps them."""
        for block_id in block_ids:
            key = self._keys.pop(block_id, None)
            if key is not None:
                del self._by_digest[key.digest]
            if block_id in self._cached:
                del self._cached[block_id]
                self._free.append(block_id)

    def check(self) -> None:
        """Check the accounting.

        Raises:
            Internal: a block is in no state, or in two.
        """
        held = {block_id for block_id, holders in enumerate(self._num_holders) if holders > 0}
        states = [*self._free, *self._cached, *held]
        if sorted(states) != list(range(self.num_blocks)) or min(self._num_holders, default=0) < 0:
            raise Internal(
                f"{self.num_free} free, {self.num_cached} cached and {len(held)} held blocks "
                f"are not the {self.num_blocks} blocks that there are"
            )
        known = {key.digest: block_id for block_id, key in self._keys.items()}
        if known != self._by_digest or not self._cached.keys() <= self._keys.keys():
            raise Internal("A cached block is not found by its key")

    def _matches(self, keys: Iterable[BlockKey]) -> Iterator[int]:
        for key in keys:
            block_id = self._by_digest.get(key.digest)
            # A digest is a hint: what counts is that the tokens are the same, link by link.
            if block_id is None or self._keys[block_id] != key:
                return
            yield block_id

    def _put_away(self, block_id: int) -> None:
        if block_id in self._keys:
            self._cached[block_id] = None
        else:
            self._free.append(block_id)

    def _evict_oldest(self) -> None:
        self.forget(list(islice(self._cached, 1)))
        self.num_evictions += 1
