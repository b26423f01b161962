"""A source states, per model, the whole set of versions that ought to be loaded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aspira.contracts.identity import ModelName, Version

VersionPaths = Mapping[Version, Path]


@dataclass(frozen=True, slots=True)
class Aspired:
    """The directory of each version of a model that ought to be loaded; the rest is unloaded."""

    model_name: ModelName
    versions: VersionPaths


AspireCallback = Callable[[Aspired], None]
"""Takes a model's whole wanted set; called on the event loop."""
