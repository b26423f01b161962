"""The toy is a yardstick of other tests: it must read what it stored, and where it was told to."""

import numpy as np
import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.llm.runner import StepBatch
from aspira.testing.toy_decoder import ToyDecoder, continuation, next_token
from runner_contract import RunnerContract


def make_batch(tokens: list[int], *, past: int, block_ids: list[int]) -> StepBatch:
    return StepBatch(
        tokens=np.array(tokens, np.int64),
        positions=np.arange(past, past + len(tokens)),
        past_lens=np.array([past], np.int32),
        sequence_begins=np.array([0, len(tokens)], np.int32),
        block_ids=np.array(block_ids, np.int32),
        block_begins=np.array([0, len(block_ids)], np.int32),
        sampled_rows=np.array([len(tokens) - 1], np.int32),
    )


def run(decoder: ToyDecoder, tokens: list[int], *, past: int, block_ids: list[int]) -> int:
    logits = decoder.run(make_batch(tokens, past=past, block_ids=block_ids))
    assert logits.shape == (1, decoder.vocab_size)
    return int(logits[0].argmax())


def test_the_next_token_can_be_worked_out_by_hand() -> None:
    assert next_token([5, 6, 7], vocab_size=100) == 1 * 5 + 2 * 6 + 3 * 7
    assert continuation([5, 6, 7], num_tokens=2, vocab_size=100) == [38, (38 + 4 * 38) % 100]


def test_tokens_may_come_in_any_parts() -> None:
    tokens = [3, 1, 4, 1, 5, 9]
    whole, parts = ToyDecoder(), ToyDecoder()
    expected = run(whole, tokens, past=0, block_ids=[4, 2])
    run(parts, tokens[:3], past=0, block_ids=[9])
    run(parts, tokens[3:5], past=3, block_ids=[9, 1])
    assert run(parts, tokens[5:], past=5, block_ids=[9, 1]) == expected
    assert expected == next_token(tokens, vocab_size=257)


@pytest.mark.parametrize("block_ids", [[2, 4], [4, 3]])
def test_a_wrong_block_table_changes_the_answer(block_ids: list[int]) -> None:
    decoder = ToyDecoder()
    run(decoder, [3, 1, 4, 1, 5], past=0, block_ids=[4, 2])
    right = next_token([3, 1, 4, 1, 5, 9], vocab_size=257)
    assert run(decoder, [9], past=5, block_ids=block_ids) != right


def test_a_block_that_another_sequence_wrote_to_changes_the_answer() -> None:
    decoder = ToyDecoder()
    run(decoder, [3, 1, 4, 1, 5], past=0, block_ids=[4, 2])
    run(decoder, [7], past=0, block_ids=[4])
    assert run(decoder, [9], past=5, block_ids=[4, 2]) != next_token(
        [3, 1, 4, 1, 5, 9], vocab_size=257
    )


def test_tokens_without_room_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="5 tokens do not fit in 1 blocks"):
        run(ToyDecoder(), [1] * 5, past=0, block_ids=[0])


def test_blocks_can_be_copied() -> None:
    first, second = ToyDecoder(), ToyDecoder()
    run(first, [3, 1, 4, 1, 5], past=0, block_ids=[4, 2])
    second.import_blocks([7, 8], payload=first.export_blocks([4, 2]))
    assert run(second, [9], past=5, block_ids=[7, 8]) == next_token(
        [3, 1, 4, 1, 5, 9], vocab_size=257
    )


def test_it_does_what_every_runner_must() -> None:
    RunnerContract(ToyDecoder(num_blocks=80)).check_all([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])
