"""What one look at a model's base path gives: the versions that ought to be loaded, or why not."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aspira.contracts.identity import ModelName, Version
from aspira.lifecycle.source import VersionPaths, VersionStamps
from aspira.lifecycle.version_choice import (
    Latest,
    Specific,
    VersionPolicy,
    choose_versions,
    duplicate_names,
    parse_versions,
)
from aspira.lifecycle.version_files import (
    CompletenessRule,
    FilesLook,
    has_marker,
    look_at_files,
)


@dataclass(frozen=True, slots=True)
class MonitoredModel:
    """A model to watch: its versions are the numeric children of `base_path`."""

    name: ModelName
    base_path: str
    policy: VersionPolicy = field(default_factory=Latest)


@dataclass(frozen=True, slots=True)
class Listing:
    """What one look at a base path gave. `versions` is None where that is not known.

    `problem` is empty when all is well. `pending` are versions that would be in `versions` but for
    the reason given. `stamps` are those of the files when they were last at rest, `looks` what is
    there now.
    """

    versions: VersionPaths | None
    problem: str = ""
    stamps: VersionStamps = field(default_factory=dict)
    pending: Mapping[Version, str] = field(default_factory=dict)
    looks: Mapping[Version, FilesLook] = field(default_factory=dict)


class ListModel(Protocol):
    """One look at a base path, in the light of the one before. Blocks, for ever if need be."""

    def __call__(
        self, model: MonitoredModel, *, rule: CompletenessRule, before: Listing | None
    ) -> Listing: ...


def list_model(
    model: MonitoredModel, *, rule: CompletenessRule, before: Listing | None = None
) -> Listing:
    """One look at a base path. Blocks on the file system; raises nothing."""
    scheme, separator, _ = model.base_path.partition("://")
    if separator and scheme != "file":
        return unlisted(
            f"File system scheme '{scheme}' not implemented (file: '{model.base_path}')",
        )
    base_path = Path(model.base_path.removeprefix("file://"))
    try:
        names = os.listdir(base_path)  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        return unlisted(
            f"Could not find base path {model.base_path} for servable {model.name}"
            f" with error NOT_FOUND: {model.base_path} not found",
        )
    except OSError as error:
        return unlisted(f"{model.base_path}; {error.strerror}")
    except ValueError as error:
        return unlisted(f"{model.base_path!r} is no path: {error}")
    return _ListingMaker(model, base_path=base_path, rule=rule, before=before).make(names)


def unlisted(reason: str) -> Listing:
    """The listing of a base path that tells nothing."""
    return Listing(
        None, f"FileSystemStoragePathSource encountered a filesystem access error: {reason}"
    )


class _ListingMaker:
    """Makes the listing of one model of the names in its base path."""

    def __init__(
        self,
        model: MonitoredModel,
        *,
        base_path: Path,
        rule: CompletenessRule,
        before: Listing | None,
    ) -> None:
        self._model = model
        self._base_path = base_path
        self._rule = rule
        self._before = before or Listing(None)
        self._looks: dict[Version, FilesLook] = {}

    def make(self, names: Sequence[str]) -> Listing:
        available = parse_versions(names)
        if not available:
            return Listing({}, self._no_versions())
        stamps, pending = self._settle(available)
        chosen = choose_versions(
            {version: available[version] for version in stamps}, policy=self._model.policy
        )
        if pending and not chosen:
            # What is loaded stays until there is something to replace it.
            return Listing(None, self._none_complete(pending), pending=pending, looks=self._looks)
        return Listing(
            {version: self._base_path / name for version, name in chosen.items()},
            "; ".join(
                [*self._missing([*chosen, *pending]), *self._duplicates(names, available=available)]
            ),
            stamps,
            pending,
            self._looks,
        )

    def _settle(
        self, available: Mapping[Version, str]
    ) -> tuple[dict[Version, int], dict[Version, str]]:
        """The stamps of the versions to load, and why others that were chosen are not.

        For one that is not complete the policy chooses another, so that an older one stays.
        """
        stamps: dict[Version, int] = {}
        pending: dict[Version, str] = {}
        candidates = dict(available)
        while True:
            chosen = choose_versions(candidates, policy=self._model.policy)
            if not chosen.keys() - stamps:
                return {version: stamps[version] for version in chosen}, pending
            for version, name in chosen.items():
                stamp = self._try_stamp(version, path=self._base_path / name)
                if stamp is not None:
                    stamps[version] = stamp
                else:
                    pending[version] = self._pending_reason
                    del candidates[version]

    def _try_stamp(self, version: Version, *, path: Path) -> int | None:
        """The stamp of a version when last at rest; None if it is not to be loaded yet."""
        look = self._looks.get(version)
        if look is None:
            before = self._before.looks.get(version)
            look = look_at_files(path).follow(before, rest_s=self._rule.rest_s)
            self._looks[version] = look
        taken, marker = self._before.stamps.get(version), self._rule.marker
        is_complete = look.is_at_rest
        if marker and taken is None:
            is_complete = has_marker(path, marker=marker)
        return look.stamp if is_complete else taken

    @property
    def _pending_reason(self) -> str:
        marker = self._rule.marker
        return f"it has no file {marker} yet" if marker else "it is still being written"

    def _no_versions(self) -> str:
        return (
            f"No versions of servable {self._model.name} found under base path "
            f"{self._model.base_path}. Did you forget to name your leaf directory as a number "
            "(eg. '/1/')?"
        )

    def _none_complete(self, pending: Iterable[Version]) -> str:
        newest = max(pending)
        return (
            f"No version of servable {self._model.name} found under base path "
            f"{self._model.base_path} is complete: {newest} is not loaded, since "
            f"{self._pending_reason}"
        )

    def _duplicates(
        self, names: Sequence[str], *, available: Mapping[Version, str]
    ) -> Iterator[str]:
        for name, version in duplicate_names(names, chosen=available).items():
            yield (
                f"Duplicate version directories detected. Version {version} will be loaded from"
                f" {available[version]}, {name} will be ignored."
            )

    def _missing(self, found: Iterable[Version]) -> Iterator[str]:
        policy = self._model.policy
        if not isinstance(policy, Specific):
            return
        if not policy.versions:
            yield f"No specific versions requested for servable {self._model.name}."
        for version in sorted(set(policy.versions).difference(found)):
            yield (
                f"Version {version} of servable {self._model.name}, which was requested to be"
                " served as a 'specific' version in the servable's version policy, was not found in"
                " the file system"
            )
