"""Flags as TensorFlow Serving has them: `--name=value`, a bare `--name` for true, the last wins."""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from aspira.compat import STRICT, restore_original
from aspira.contracts.errors import InvalidArgument
from aspira.settings import Settings

FlagValue = str | int | float | bool
Convert = Callable[[Any], Any]


class KnownFlag(Protocol):
    """What the command line and its help need of a flag."""

    @property
    def name(self) -> str: ...

    @property
    def default(self) -> FlagValue: ...

    @property
    def help(self) -> str: ...


class UnfitValue(ValueError):
    """What a flag's `convert` raises to say, in a sentence, which values it takes."""


AnyFlag = TypeVar("AnyFlag", bound=KnownFlag)


@dataclass(frozen=True, slots=True)
class PlainFlag:
    """A flag of a command that is no server: it sets nothing but its own value."""

    name: str
    default: FlagValue
    help: str


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag and the setting it sets, `group.field`. `default` is what help shows.

    `convert` takes the parsed value to the setting's unit.
    """

    name: str
    setting: str
    default: FlagValue
    help: str
    convert: Convert | None = None


@dataclass(frozen=True, slots=True)
class ParsedFlags:
    """What a command line said. `unknown` are the arguments that are no flag of the table."""

    settings: Settings
    unknown: tuple[str, ...]


def parse_flags(
    arguments: Iterable[str], *, flags: tuple[Flag, ...], settings: Settings
) -> ParsedFlags:
    """`settings` with the flags' values put in, after what `--compat=strict` stands for.

    Raises:
        InvalidArgument: a known flag with a value that does not fit.
    """
    unknown: list[str] = []
    values: list[tuple[Flag, Any]] = []
    for argument, flag, text in match_flags(arguments, flags=flags):
        if flag is None:
            unknown.append(argument)
        else:
            values.append((flag, parse_value(text, flag=flag, convert=flag.convert)))
    if _apply(values, settings=settings).process.compat == STRICT:
        settings = restore_original(settings)
    return ParsedFlags(_apply(values, settings=settings), tuple(unknown))


def match_flags(
    arguments: Iterable[str], *, flags: Iterable[AnyFlag]
) -> Iterator[tuple[str, AnyFlag | None, str]]:
    """Each argument, the flag that it sets, and the value's text; None where it sets none."""
    by_name = {flag.name: flag for flag in flags}
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            yield from ((rest, None, "") for rest in (argument, *remaining))
            return
        name, separator, text = argument.removeprefix("--").partition("=")
        flag = by_name.get(name) if argument.startswith("--") else None
        if flag is None or (not separator and flag_kind(flag) != "bool"):
            yield argument, None, ""
        else:
            yield argument, flag, text if separator else "true"


def guess_meant(argument: str, *, flags: Iterable[KnownFlag]) -> str:
    """The flag that an unknown argument may have been meant for, as a question; or nothing."""
    name, separator, _ = argument.removeprefix("--").partition("=")
    names = [flag.name for flag in flags]
    if name in names and not separator:
        return f"; did you mean --{name}=VALUE?"
    found = difflib.get_close_matches(name.replace("-", "_"), names, n=1, cutoff=0.75)
    return f"; did you mean --{found[0]}?" if found else ""


def flag_kind(flag: KnownFlag) -> str:
    """The name of its type, as help shows it."""
    return {bool: "bool", int: "int64", float: "float", str: "string"}[type(flag.default)]


def parse_value(text: str, *, flag: KnownFlag, convert: Convert | None = None) -> Any:
    """The value of a flag.

    Raises:
        InvalidArgument: the text does not fit its type.
    """
    try:
        value = _PARSERS[flag_kind(flag)](text)
        return convert(value) if convert else value
    except (ValueError, KeyError) as error:
        hint = f" {error}" if isinstance(error, UnfitValue) else ""
        raise InvalidArgument(
            f"Couldn't interpret value {text} for flag {flag.name}.{hint}"
        ) from None


def usage(flags: Iterable[KnownFlag], *, program: str) -> str:
    """The help text."""
    lines = [f"usage: {program}", "Flags:"]
    for flag in flags:
        kind = flag_kind(flag)
        shown = str(flag.default).lower() if kind == "bool" else str(flag.default)
        quoted = f'"{shown}"' if kind == "string" else shown
        name = f"--{flag.name}={quoted}"
        lines.append(f"\t{name:<33}\t{kind}\t{flag.help}")
    return "\n".join(lines) + "\n"


def _parse_bool(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]


def _parse_int(text: str) -> int:
    value = int(_check_digits(text))
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def _parse_float(text: str) -> float:
    value = float(_check_digits(text))
    if math.isnan(value):
        raise ValueError(text)
    return value


def _check_digits(text: str) -> str:
    """Refuse what Python takes for a number and C's `sscanf` does not."""
    if "_" in text or not text.isascii() or text[-1:].isspace():
        raise ValueError(text)
    return text


_PARSERS: MappingProxyType[str, Callable[[str], Any]] = MappingProxyType(
    {"bool": _parse_bool, "int64": _parse_int, "float": _parse_float, "string": str}
)


def _apply(values: Iterable[tuple[Flag, Any]], *, settings: Settings) -> Settings:
    for flag, value in values:
        group, _, field = flag.setting.partition(".")
        settings = replace(settings, **{group: replace(getattr(settings, group), **{field: value})})
    return settings
