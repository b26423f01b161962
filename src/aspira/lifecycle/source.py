"""A source states, per model, the whole set of versions that ought to be loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aspira.contracts.identity import ModelName, Version

VersionPaths = Mapping[Version, Path]
VersionStamps = Mapping[Version, int]


@dataclass(frozen=True, slots=True)
class Aspired:
    """The directory of each version of a model that ought to be loaded; the rest is unloaded.

    A version's stamp, where there is one, differs once its files have changed: reason enough to
    try a failed load again.
    """

    model_name: ModelName
    versions: VersionPaths
    stamps: VersionStamps = field(default_factory=dict)


AspireCallback = Callable[[Aspired], None]
"""Takes a model's whole wanted set; called on the event loop."""
