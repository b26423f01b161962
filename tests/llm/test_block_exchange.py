import pytest

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.llm.block_exchange import BlockBundle, export_prefix, import_prefix
from aspira.testing.toy_decoder import ToyDecoder, continuation
from generation_toys import SteppedEngine, make_request

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


def serve(engine: SteppedEngine, **changes: object) -> tuple[list[int], int]:
    """The tokens after the prompt, and how many of the prompt's were cached."""
    received = engine.submit(make_request(PROMPT, **changes))
    engine.run()
    usage = received.deltas[-1].usage
    assert usage is not None
    return received.tokens(), usage.cached_tokens


def export(engine: SteppedEngine, **changes: str) -> BlockBundle:
    runner = engine.steps.executor.keeper.runner
    return export_prefix(runner, blocks=engine.scheduler.blocks, tokens=PROMPT, **changes)


def load(engine: SteppedEngine, bundle: BlockBundle) -> int:
    runner = engine.steps.executor.keeper.runner
    count = import_prefix(runner, blocks=engine.scheduler.blocks, bundle=bundle)
    engine.scheduler.blocks.check()
    return count


def test_blocks_of_one_engine_are_a_cached_prefix_in_another() -> None:
    first, second = SteppedEngine(), SteppedEngine()
    expected = serve(first)[0]
    bundle = export(first)
    assert len(bundle.keys) == 2
    assert load(second, bundle) == 2
    assert second.scheduler.blocks.num_held == 0
    assert serve(second) == (expected, 8)


def test_the_content_is_what_counts() -> None:
    """An engine that is given other content says other things: it does read what was imported."""
    first, second = SteppedEngine(), SteppedEngine()
    expected = serve(first)[0]
    bundle = export(first)
    load(second, bundle._replace(payload=bundle.payload[::-1].copy() * 0))
    assert serve(second)[0] != expected


def test_only_what_is_lacking_is_taken() -> None:
    engine = SteppedEngine()
    serve(engine)
    assert load(engine, export(engine)) == 2
    assert engine.scheduler.blocks.num_cached == 4


def test_nothing_is_imported_where_there_is_no_room() -> None:
    first = SteppedEngine()
    serve(first)
    second = SteppedEngine(lambda: ToyDecoder(num_blocks=1))
    assert load(second, export(first)) == 1
    assert second.scheduler.blocks.num_cached == 1


def test_nothing_cached_is_an_empty_bundle() -> None:
    bundle = export(SteppedEngine())
    assert bundle.keys == ()
    assert load(SteppedEngine(), bundle) == 0


def test_salts_are_kept_apart() -> None:
    engine = SteppedEngine()
    serve(engine, cache_salt="tenant")
    assert export(engine).keys == ()
    assert len(export(engine, salt="tenant").keys) == 2


def test_blocks_of_another_model_are_refused() -> None:
    first = SteppedEngine()
    serve(first)
    other = SteppedEngine(lambda: ToyDecoder(vocab_size=300))
    with pytest.raises(FailedPrecondition, match="toy/4/300"):
        load(other, export(first))


def test_keys_that_do_not_follow_from_tokens_are_refused() -> None:
    engine = SteppedEngine()
    serve(engine)
    bundle = export(engine)
    forged = bundle.keys[1]._replace(tokens=(0, 0, 0, 0))
    for keys in ((bundle.keys[0], forged), bundle.keys[::-1], bundle.keys[:1]):
        with pytest.raises(InvalidArgument, match="do not follow"):
            load(SteppedEngine(), bundle._replace(keys=keys))


def test_the_toys_answers_are_what_they_should_be() -> None:
    assert serve(SteppedEngine())[0] == continuation(PROMPT, num_tokens=8, vocab_size=257)
