"""Flags of TensorFlow Serving that set nothing here, each with the reason, so that none is silent.

A flag with *no effect* asks for what this server does anyway, or for what only the original has to
tune: it is accepted, with a note. An *unsupported* one asks for something that is not done.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from aspira.cli.flags import FlagValue, match_flags, parse_value


class Support(Enum):
    """What becomes of a flag's wish."""

    NO_EFFECT = "Accepted, without effect"
    UNSUPPORTED = "Not supported"


@dataclass(frozen=True, slots=True)
class ForeignFlag:
    """A flag of the original. With its `default` it asks for nothing, and nothing is said."""

    name: str
    default: FlagValue
    support: Support
    reason: str

    @property
    def help(self) -> str:
        return f"{self.support.value}: {self.reason}."


@dataclass(frozen=True, slots=True)
class ForeignArguments:
    """What a command line asks of them, each flag once, and the arguments that are none of them."""

    flags: tuple[ForeignFlag, ...]
    unknown: tuple[str, ...]

    @property
    def unsupported(self) -> tuple[ForeignFlag, ...]:
        return tuple(flag for flag in self.flags if flag.support is Support.UNSUPPORTED)

    @property
    def without_effect(self) -> tuple[ForeignFlag, ...]:
        return tuple(flag for flag in self.flags if flag.support is Support.NO_EFFECT)


def _no_effect(name: str, *, default: FlagValue, reason: str) -> ForeignFlag:
    return ForeignFlag(name, default, Support.NO_EFFECT, reason)


def _unsupported(name: str, *, default: FlagValue, reason: str) -> ForeignFlag:
    return ForeignFlag(name, default, Support.UNSUPPORTED, reason)


_ONE_LOOP = "one event loop serves all connections; --num_run_threads bounds the runs of a model"
_XLA = "XLA is never turned off: a model that asks to be compiled is compiled"

FOREIGN_FLAGS: tuple[ForeignFlag, ...] = (
    _no_effect("rest_api_num_threads", default=0, reason=_ONE_LOOP),
    _no_effect("grpc_max_threads", default=0, reason=_ONE_LOOP),
    _no_effect(
        "flush_filesystem_caches",
        default=True,
        reason="models are read from local files, for which the server keeps no cache",
    ),
    _no_effect(
        "remove_unused_fields_from_bundle_metagraph",
        default=True,
        reason="nothing of the MetaGraph but its signatures is kept after loading",
    ),
    _no_effect("xla_cpu_compilation_enabled", default=False, reason=_XLA),
    _no_effect("xla_gpu_compilation_enabled", default=False, reason=_XLA),
    _no_effect(
        "skip_initialize_tpu", default=False, reason="no TPU is initialized in the first place"
    ),
    _unsupported(
        "thread_pool_factory_config_file",
        default="",
        reason="there are no factories of thread pools, as in the original's own binary",
    ),
)


def take_foreign_flags(arguments: Iterable[str]) -> ForeignArguments:
    """Sort out what `parse_flags` did not know. The last value of a flag counts.

    Raises:
        InvalidArgument: a value that does not fit.
    """
    unknown: list[str] = []
    values: dict[ForeignFlag, FlagValue] = {}
    for argument, flag, text in match_flags(arguments, flags=FOREIGN_FLAGS):
        if flag is None:
            unknown.append(argument)
        else:
            values[flag] = parse_value(text, flag=flag)
    asked = tuple(flag for flag, value in values.items() if value != flag.default)
    return ForeignArguments(asked, tuple(unknown))
