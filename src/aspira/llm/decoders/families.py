"""The decoder families that are served, and how one is found by what a file calls it."""

from aspira.contracts.errors import Unimplemented
from aspira.llm.decoders import llama, qwen2, qwen3
from aspira.llm.decoders.family import Family

FAMILIES = (llama.FAMILY, qwen2.FAMILY, qwen3.FAMILY)


def family_of_architecture(name: str) -> Family:
    """The family of an architecture of `config.json`.

    Raises:
        Unimplemented: none is served.
    """
    for family in FAMILIES:
        if name in family.architectures:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.architectures)
    raise Unimplemented(
        f"Decoders of the architecture {name!r} are not built from weights, those of {known} are; "
        "serve this one as an OpenVINO IR"
    )


def family_of_gguf(name: str) -> Family:
    """The family of a GGUF file's architecture.

    Raises:
        Unimplemented: none is served.
    """
    for family in FAMILIES:
        if name == family.gguf_architecture:
            return family
    known = ", ".join(family.gguf_architecture for family in FAMILIES)
    raise Unimplemented(
        f"GGUF files of the architecture {name!r} are not served, those of {known} are"
    )


def family_named(name: str) -> Family:
    """The family of a `DecoderConfig`."""
    return next(family for family in FAMILIES if family.name == name)
