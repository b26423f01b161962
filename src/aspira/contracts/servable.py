"""Versions as protocols.

A framework implements two: a Loader for one version, and the Servable that it loads. `Served` is
what services see of a version that is ready, whatever kind it is.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from aspira.contracts.errors import ServingError
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensors


class Servable(Protocol):
    """A loaded version. `run` blocks and may be called from several threads at once."""

    @property
    def signatures(self) -> Mapping[str, Signature]: ...

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """Run one signature on inputs by alias and return the outputs named in `outputs`.

        The caller has checked aliases against the signature, not dtypes and shapes.

        Raises:
            ServingError: with the runtime's own text.
        """
        ...

    def unload(self) -> None:
        """Free everything. Called once, after the last `run` has returned."""
        ...


@runtime_checkable
class Unblocking(Protocol):
    """A servable that knows which of its runs never wait."""

    @property
    def straight_signatures(self) -> AbstractSet[str]:
        """Those that do nothing but compute, on CPUs and in memory, for as long as inputs of their
        size take: no locks, files, devices, clients or loops.
        """
        ...


class Served(Protocol):
    """A ready version as services see it. Event loop only, but for `unload`."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """What `run` can be asked for; a language model has none."""
        ...

    @property
    def signature_advice(self) -> str:
        """Follows the message that a signature is not there: what to ask instead. Often empty."""
        ...

    def find_problem(self) -> ServingError | None:
        """Why it cannot answer although it is loaded, if so. Costs nothing."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether it has such a problem for good: only a new process can help. Costs nothing."""
        ...

    async def run(
        self,
        signature_name: str,
        *,
        inputs: Tensors,
        outputs: tuple[str, ...],
        deadline: float | None,
        priority: int = 0,
    ) -> Tensors:
        """Run one signature, or give up at the deadline.

        Raises:
            ServingError: the deadline passed, it would wait too long, or it failed.
        """
        ...

    def unload(self) -> None:
        """Free everything. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class SignatureRuntime:
    """What serves a signature, and why. Times are the best of the same runs, in seconds.

    `difference` tells in words how far the accelerator's answers were from TensorFlow's.
    """

    runtime: str
    reason: str
    precision: str = "f32"
    difference: str = ""
    tensorflow_s: float | None = None
    accelerated_s: float | None = None


@runtime_checkable
class Accelerated(Protocol):
    """A servable that can tell which runtime serves each of its signatures."""

    @property
    def runtimes(self) -> Mapping[str, SignatureRuntime]: ...


class Unloadable(Protocol):
    """What the lifecycle needs to know of a loaded version."""

    def unload(self) -> None: ...


LoadedT = TypeVar("LoadedT", bound=Unloadable)
LoadedT_co = TypeVar("LoadedT_co", bound=Unloadable, covariant=True)


class Loader(Protocol[LoadedT_co]):
    """Makes one version ready. Cheap to build; `load` does the work, on a load thread."""

    def load(self) -> LoadedT_co:
        """Read, compile and warm up; return what can serve. May be called again after a failure.

        Raises:
            ServingError: why this version cannot be served.
        """
        ...
