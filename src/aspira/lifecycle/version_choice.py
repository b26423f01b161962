"""Which of the versions on disk ought to be served: latest N, all, or the listed ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aspira.contracts.identity import MAX_VERSION, Version


@dataclass(frozen=True, slots=True)
class Latest:
    """The `num_versions` highest; 0 counts as 1."""

    num_versions: int = 1


@dataclass(frozen=True, slots=True)
class All:
    """Every version there is."""


@dataclass(frozen=True, slots=True)
class Specific:
    """The listed versions, as far as they are there."""

    versions: tuple[Version, ...]


VersionPolicy = Latest | All | Specific


def parse_version(name: str) -> Version | None:
    """The version a directory name stands for, or None: `7`, `00000007`, but not `1.0` or `v1`.

    The whole name must be a base-10 int64, as for TensorFlow Serving; a sign and blanks around it
    are allowed.
    """
    number = name.strip(" \t\n\v\f\r")
    digits = number[1:] if number[:1] in {"+", "-"} else number
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 4096:
        return None
    version = int(number)
    return Version(version) if -MAX_VERSION - 1 <= version <= MAX_VERSION else None


def parse_versions(names: Iterable[str]) -> dict[Version, str]:
    """Directory name by version. Of `1` and `001` the textually last wins."""
    found: dict[Version, str] = {}
    for name in sorted(names):
        version = parse_version(name)
        if version is not None:
            found[version] = name
    return found


def duplicate_names(names: Iterable[str], *, chosen: Mapping[Version, str]) -> dict[str, Version]:
    """The names that stand for a version for which `parse_versions` has chosen another."""
    versions = {name: parse_version(name) for name in sorted(names)}
    return {name: v for name, v in versions.items() if v is not None and chosen[v] != name}


def choose_versions(
    available: Mapping[Version, str], *, policy: VersionPolicy
) -> dict[Version, str]:
    """The part of `available` that the policy aspires, newest first."""
    match policy:
        case Latest(num_versions):
            chosen = sorted(available, reverse=True)[: max(num_versions, 1)]
        case All():
            chosen = sorted(available, reverse=True)
        case Specific(versions):
            chosen = sorted(set(versions) & available.keys(), reverse=True)
    return {version: available[version] for version in chosen}
