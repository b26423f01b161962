"""A model that takes examples and answers what a test gave it, whatever it is asked."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import numpy as np

from aspira.batching.loader import BatchingLoader
from aspira.batching.servable import BatchedServable
from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import ServingError
from aspira.contracts.events import EventBus
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.signatures import CLASSIFY_METHOD, REGRESS_METHOD, Signature, TensorSpec
from aspira.contracts.tensors import DataType, Tensor, Tensors
from aspira.lifecycle.manager import Manager
from aspira.lifecycle.options import LifecycleOptions
from aspira.lifecycle.source import Aspired
from aspira.routing.table import RoutingTable
from aspira.service.inference import InferenceService, Router
from aspira.service.options import ServiceOptions
from aspira.settings import Settings
from batching_toys import make_batching_loader, make_context

M = ModelName("m")
VERSION = Version(3)


def signature_of(
    *outputs: str, inputs: tuple[str, ...] = ("inputs",), method_name: str = ""
) -> Signature:
    return Signature(
        {alias: TensorSpec(DataType.STRING, None, f"{alias}:0") for alias in inputs},
        {alias: TensorSpec(DataType.FLOAT, None, f"{alias}:0") for alias in outputs},
        method_name,
    )


SIGNATURES = {
    "serving_default": signature_of("classes", "scores", method_name=CLASSIFY_METHOD),
    "labels": signature_of("classes", method_name=CLASSIFY_METHOD),
    "scores": signature_of("scores", "other", method_name=CLASSIFY_METHOD),
    "regress": signature_of("outputs", method_name=REGRESS_METHOD),
    "odd": signature_of("x", inputs=("y",), method_name="odd"),
}


def strings(*values: object) -> Tensor:
    return np.array(values, np.object_)


def floats(*values: object) -> Tensor:
    return np.array(values, np.float32)


OUTPUTS = {
    "classes": strings([b"cat", b"dog"], [b"\xff", b'"']),
    "scores": floats([0.1, 2], [3, 4]),
    "outputs": floats([2.5], [1 / 3]),
}
"""For two examples."""


class FixedServable:
    """Answers with the given outputs, or the given error; `runs` holds what it was asked."""

    def __init__(
        self,
        signatures: Mapping[str, Signature] = SIGNATURES,
        *,
        outputs: Tensors = OUTPUTS,
        error: ServingError | None = None,
    ) -> None:
        self.signatures = signatures
        self.runs: list[tuple[str, list[bytes], tuple[str, ...]]] = []
        self._outputs = outputs
        self._error = error

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        self.runs.append((signature_name, inputs["inputs"].tolist(), outputs))
        if self._error is not None:
            raise self._error
        return {alias: self._outputs[alias] for alias in outputs}

    def load(self) -> "FixedServable":
        return self

    def unload(self) -> None:
        return

    def make_runtime_loader(
        self, path: Path, *, settings: Settings, events: EventBus
    ) -> "FixedServable":
        """To put it into a server."""
        return self


def play(
    scenario: Callable[[InferenceService], Awaitable[None]],
    *,
    servable: FixedServable,
    is_method_name_checked: bool = False,
) -> None:
    """With version 3 of `m` ready."""

    async def act() -> None:
        context = make_context()

        def make_loader(servable_id: ServableId, *, path: Path) -> BatchingLoader:
            return make_batching_loader(servable, context=context, servable_id=servable_id)

        manager = Manager[BatchedServable](
            make_loader, options=LifecycleOptions(), events=EventBus()
        )
        manager.aspire(Aspired(M, {VERSION: Path("/m/3")}))
        await manager.wait_until(lambda: all(s.state.value == "ready" for s in manager.statuses(M)))
        await scenario(
            InferenceService(
                manager,
                router=Router(RoutingTable()),
                clock=SystemClock(),
                options=ServiceOptions(is_method_name_checked=is_method_name_checked),
            )
        )
        # Waits for every lease.
        await manager.stop()

    asyncio.run(act())
