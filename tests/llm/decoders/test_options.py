import pytest

from aspira.contracts.errors import FailedPrecondition, InvalidArgument
from aspira.llm.decoders.options import DecoderOptions


@pytest.mark.parametrize(("has_bfloat16", "best"), [(True, "bf16"), (False, "f32")])
def test_auto_is_what_the_cpu_does_best(*, has_bfloat16: bool, best: str) -> None:
    decided = DecoderOptions().resolved(has_bfloat16=has_bfloat16)
    assert (decided.precision, decided.cache_precision, decided.weight_format) == (best,) * 3


def test_what_is_set_stays() -> None:
    asked = DecoderOptions(
        precision="f32", cache_precision="u8", weight_format="int8", cache_mib=7, num_threads=3
    )
    assert asked.resolved(has_bfloat16=True) == asked


def test_bf16_needs_a_cpu_that_has_it() -> None:
    with pytest.raises(FailedPrecondition, match="no instructions for bf16"):
        DecoderOptions(precision="bf16").resolved(has_bfloat16=False)


@pytest.mark.parametrize(("precision", "cache"), [("f32", "bf16"), ("bf16", "f32")])
def test_a_cache_that_openvino_would_refuse(precision: str, cache: str) -> None:
    options = DecoderOptions(precision=precision, cache_precision=cache)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="cannot have a"):
        options.resolved(has_bfloat16=True)


@pytest.mark.parametrize("wrong", [{"cache_mib": 0}, {"num_threads": -1}])
def test_sizes_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match="cache_mib"):
        DecoderOptions(**wrong)  # type: ignore[arg-type]
