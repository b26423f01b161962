"""What an accelerator is given and what it makes: the words that the choice of one speaks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensor, Tensors
from aspira.runtimes.parity import Tolerance
from aspira.runtimes.saved_model import Session
from aspira.runtimes.signature_graph import GraphDef, SignatureGraph


@dataclass(frozen=True, slots=True)
class CompileTask:
    """One signature to compile, by its `name`.

    `digest` names the model's files and the signature. `recorded` are inputs that clients sent.
    """

    name: str
    signature: Signature
    graph: SignatureGraph
    session: Session
    digest: str
    recorded: tuple[Tensors, ...]


class CompiledSignature(Protocol):
    """A signature outside TensorFlow."""

    def prepare(self, samples: Sequence[Tensors]) -> None:
        """Compile what runs of these shapes need. Called once, before the version is published.

        Raises:
            StaysOnTensorflow: it cannot run them.
        """
        ...

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        """The outputs, which the caller owns, or None: TensorFlow is to answer this request.

        May be called from several threads at once. It never raises for a request that TensorFlow
        might answer or refuse in its own words.
        """
        ...

    def try_all(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Sequence[Tensors | None]:
        """All that `try_run` might give back, where the same request may be run in several ways."""
        ...


def is_finite(tensor: Tensor) -> bool:
    """Whether floats are all numbers. Runtimes differ in what they make of others.

    OpenVINO's ReLU makes zero of what is no number; XLA's maxima are elsewhere.
    """
    return bool(np.isfinite(tensor).all())


class Accelerator(Protocol):
    """A compiler of signatures. `precision` and `tolerance` are of what it compiles."""

    @property
    def name(self) -> str: ...

    @property
    def precision(self) -> str: ...

    @property
    def tolerance(self) -> Tolerance: ...

    def find_difference(self, graph_def: GraphDef) -> str:
        """Why it may answer otherwise than TensorFlow; empty if nothing is known."""
        ...

    def compile(self, task: CompileTask) -> CompiledSignature:
        """Compile one signature.

        Raises:
            StaysOnTensorflow: it cannot; the text is the reason.
        """
        ...
