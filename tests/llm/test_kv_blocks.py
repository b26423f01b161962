from collections.abc import Sequence

import pytest

from aspira.contracts.errors import Internal
from aspira.llm.kv_blocks import BlockKey, KvBlocks, child_key, root_of


def chain_keys(tokens: Sequence[int], *, block_size: int, salt: str = "") -> list[BlockKey]:
    keys: list[BlockKey] = []
    parent = root_of(salt)
    for end in range(block_size, len(tokens) + 1, block_size):
        keys.append(child_key(parent, tokens=tuple(tokens[end - block_size : end])))
        parent = keys[-1].digest
    return keys


def make_chain(num_blocks: int, *, first: int = 0, salt: str = "") -> list[BlockKey]:
    return chain_keys(range(first, first + 2 * num_blocks), block_size=2, salt=salt)


def fill(blocks: KvBlocks, keys: list[BlockKey]) -> list[int]:
    block_ids = blocks.allocate(len(keys))
    for block_id, key in zip(block_ids, keys, strict=True):
        blocks.register(block_id, key=key)
    return block_ids


def states(blocks: KvBlocks) -> tuple[int, int, int]:
    blocks.check()
    return blocks.num_free, blocks.num_held, blocks.num_cached


def test_each_block_is_free_held_or_cached() -> None:
    blocks = KvBlocks(5, block_size=2)
    assert states(blocks) == (5, 0, 0)
    unknown = blocks.allocate(2)
    known = fill(blocks, make_chain(2))
    assert states(blocks) == (1, 4, 0)
    blocks.release(unknown)
    blocks.release(known)
    assert states(blocks) == (3, 0, 2)
    blocks.acquire(known)
    assert states(blocks) == (3, 2, 0)


def test_a_block_is_free_only_when_its_last_holder_has_gone() -> None:
    blocks = KvBlocks(2, block_size=2)
    block_ids = fill(blocks, make_chain(1))
    blocks.acquire(block_ids)
    blocks.release(block_ids)
    assert states(blocks) == (1, 1, 0)
    blocks.release(block_ids)
    assert states(blocks) == (1, 0, 1)
    with pytest.raises(Internal, match="more often"):
        blocks.release(block_ids)


def test_the_longest_known_beginning_is_found() -> None:
    blocks = KvBlocks(4, block_size=2)
    block_ids = fill(blocks, make_chain(3))
    assert blocks.match(make_chain(5)) == block_ids
    assert blocks.match(make_chain(2)) == block_ids[:2]
    assert blocks.match(make_chain(3, first=1)) == []


def test_what_follows_a_different_beginning_is_not_found() -> None:
    blocks = KvBlocks(4, block_size=2)
    fill(blocks, chain_keys([1, 2, 3, 4], block_size=2))
    assert blocks.match(chain_keys([9, 9, 3, 4], block_size=2)) == []


def test_salts_do_not_share() -> None:
    blocks = KvBlocks(4, block_size=2)
    fill(blocks, make_chain(2, salt="tenant a"))
    assert blocks.match(make_chain(2, salt="tenant b")) == []
    assert len(blocks.match(make_chain(2, salt="tenant a"))) == 2


def test_no_salt_spells_what_a_block_is_hashed_of() -> None:
    """Clients choose salts: one that gave a block's digest would be the begin of its prompt."""
    parent, token = b"root, but a hash", b"a token."
    block = child_key(parent, tokens=(int.from_bytes(token, "little"),))
    for prefix in (b"", b"root", b"salt"):
        salt = (parent + token).removeprefix(prefix).decode()
        assert root_of(salt) != block.digest


def test_equal_digests_of_different_tokens_are_told_apart() -> None:
    def collide(_: bytes) -> bytes:
        return b"same"

    blocks = KvBlocks(2, block_size=2)
    root = root_of("")
    (block_id,) = fill(blocks, [child_key(root, tokens=(1, 2), digest=collide)])
    assert blocks.match([child_key(root, tokens=(1, 2), digest=collide)]) == [block_id]
    assert blocks.match([child_key(root, tokens=(3, 4), digest=collide)]) == []


def test_digests_do_not_depend_on_the_process() -> None:
    assert child_key(root_of("s"), tokens=(1, 2)).digest.hex() == "e3bcdd1fc97bceabd10a406bca54dfc3"


def test_the_least_recently_used_goes_first_and_tails_before_heads() -> None:
    blocks = KvBlocks(4, block_size=2)
    old, new = make_chain(2), make_chain(2, first=50)
    for keys in (old, new):
        blocks.release(fill(blocks, keys))
    used_again = blocks.match(old)
    blocks.acquire(used_again)
    blocks.release(used_again)
    blocks.allocate(3)
    assert blocks.match(new) == []
    assert len(blocks.match(old)) == 1
    assert blocks.num_evictions == 3
    blocks.check()


def test_held_blocks_are_never_given_away() -> None:
    blocks = KvBlocks(3, block_size=2)
    fill(blocks, make_chain(2))
    with pytest.raises(Internal, match="2 blocks wanted, 1 there"):
        blocks.allocate(2)


def test_a_second_copy_is_not_shared() -> None:
    blocks = KvBlocks(4, block_size=2)
    first, second = fill(blocks, make_chain(1)), fill(blocks, make_chain(1))
    assert blocks.match(make_chain(1)) == first
    blocks.release(second)
    assert states(blocks) == (3, 1, 0)


def test_what_is_forgotten_is_not_found_and_stays_held() -> None:
    blocks = KvBlocks(4, block_size=2)
    held, cached = fill(blocks, make_chain(1)), fill(blocks, make_chain(1, first=50))
    blocks.release(cached)
    blocks.forget([*held, *cached])
    assert blocks.match(make_chain(1)) == blocks.match(make_chain(1, first=50)) == []
    assert states(blocks) == (3, 1, 0)


def test_the_check_finds_a_block_in_no_state() -> None:
    blocks = KvBlocks(2, block_size=2)
    blocks._free.pop()
    with pytest.raises(Internal, match="are not the 2 blocks"):
        blocks.check()
