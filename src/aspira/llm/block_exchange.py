"""Copies cached blocks out of a runner and into one, under the keys that say what they hold."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.llm.kv_blocks import BlockKey, KvBlocks, chain_keys, child_key
from aspira.llm.runner import BlockPayload, Runner


class BlockBundle(NamedTuple):
    """Consecutive blocks of a prefix, and what they fit."""

    kv_fingerprint: str
    keys: tuple[BlockKey, ...]
    payload: BlockPayload


def export_prefix(
    runner: Runner, *, blocks: KvBlocks, tokens: Sequence[int], salt: str = ""
) -> BlockBundle:
    """What is cached of the beginning of `tokens`; perhaps nothing."""
    keys = chain_keys(tokens, block_size=runner.block_size, salt=salt)
    block_ids = blocks.match(keys)
    payload = runner.export_blocks(block_ids)
    return BlockBundle(runner.kv_fingerprint, tuple(keys[: len(block_ids)]), payload)


def import_prefix(runner: Runner, *, blocks: KvBlocks, bundle: BlockBundle) -> int:
    """Put into the cache what it lacks of a bundle, as far as there is room.

    Returns:
        How many blocks of the bundle are cached now.

    Raises:
        FailedPrecondition: the bundle is of another model, or of another layout.
        InvalidArgument: its keys are no chain, or not those of its tokens.
    """
    _check_bundle(bundle, runner=runner)
    known = blocks.match(bundle.keys)
    blocks.acquire(known)
    count = min(len(bundle.keys) - len(known), blocks.num_available)
    added = slice(len(known), len(known) + count)
    block_ids = blocks.allocate(count)
    try:
        if count:
            runner.import_blocks(block_ids, payload=bundle.payload[added])
        for block_id, key in zip(block_ids, bundle.keys[added], strict=True):
            blocks.register(block_id, key=key)
    finally:
        blocks.release([*known, *block_ids])
    return len(known) + count


def _check_bundle(bundle: BlockBundle, *, runner: Runner) -> None:
    if bundle.kv_fingerprint != runner.kv_fingerprint:
        raise FailedPrecondition(
            f"The blocks are of {bundle.kv_fingerprint}, the model's are {runner.kv_fingerprint}"
        )
    sound = len(bundle.payload) == len(bundle.keys) and all(
        key == child_key(key.parent, tokens=key.tokens) and len(key.tokens) == runner.block_size
        for key in bundle.keys
    )
    if not sound or any(a.digest != b.parent for a, b in pairwise(bundle.keys)):
        raise InvalidArgument("The blocks' keys do not follow from their tokens")
