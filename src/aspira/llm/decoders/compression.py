"""Rounds the matrices of a model to integers, by NNCF."""

import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from aspira.contracts.errors import Internal, Unimplemented

WeightPrecision = Literal["f32", "f16", "int8", "int4"]

INTEGERS: frozenset[WeightPrecision] = frozenset({"int8", "int4"})
# That of most files with 4 bits: a smaller group is larger on disk, a larger one rounds more.
_GROUP_SIZE = 32
# The embedding and the head have 8 bits: there are few tokens for each of their rows to learn from.
_INT4_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {"group_size": _GROUP_SIZE, "ratio": 1.0, "all_layers": False, "awq": True}
)

# OpenVINO's bindings have no usable types, and NNCF has none.
Model: TypeAlias = Any


def check_compression(weights: WeightPrecision) -> None:
    """Whether this can be done here, which is good to know before there is work in it.

    Raises:
        Unimplemented: the package that does it is not installed.
    """
    if weights in INTEGERS:
        _import_nncf()


def compress(model: Model, *, weights: WeightPrecision) -> Model:
    """The model with its matrices in 8 bits, or in 4 but for embedding and head. In place.

    Raises:
        ServingError: NNCF is not there, or cannot do it.
    """
    nncf = _import_nncf()
    modes = nncf.CompressWeightsMode
    try:
        if weights == "int8":
            return nncf.compress_weights(model, mode=modes.INT8_ASYM)
        # Rows that are not made of whole groups have 8 bits.
        fallback = nncf.AdvancedCompressionParameters(
            group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
        )
        return nncf.compress_weights(
            model, mode=modes.INT4_SYM, advanced_parameters=fallback, **_INT4_SETTINGS
        )
    except (RuntimeError, ValueError, nncf.errors.InternalError) as error:
        raise Internal(f"NNCF cannot compress this model to {weights}: {error}") from error


def _import_nncf() -> Any:
    # NNCF reports its use to its makers unless this is set.
    os.environ.setdefault("NNCF_CI", "1")
    try:
        import nncf
        import rich
    except ImportError as error:
        raise Unimplemented(
            "Integer weights need the package nncf: pip install 'aspira[int8]'; or take "
            "--weights=f16"
        ) from error
    # It tells each step, and draws progress bars with the console that rich has for all.
    # Its own function for that would change the level of handlers, too, and not all are its own.
    logging.getLogger("nncf").setLevel(logging.ERROR)
    rich.get_console().quiet = True
    return nncf
