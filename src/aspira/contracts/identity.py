"""Names of the things a server holds: models, their versions, and what a client asked for."""

from dataclasses import dataclass
from typing import NamedTuple, NewType

ModelName = NewType("ModelName", str)
Version = NewType("Version", int)
VersionLabel = NewType("VersionLabel", str)

MAX_VERSION = 2**63 - 1
DEFAULT_SIGNATURE_NAME = "serving_default"


@dataclass(frozen=True, slots=True)
class ServableId:
    """One version of one model."""

    name: ModelName
    version: Version

    def __str__(self) -> str:
        return f"{{name: {self.name} version: {self.version}}}"


class ModelSpec(NamedTuple):
    """What a client asked for: a model, at most one of version and label, and a signature.

    An empty `signature_name` means `serving_default`; no version and no label mean the newest
    available version.
    """

    name: ModelName
    version: Version | None = None
    label: VersionLabel | None = None
    signature_name: str = ""
