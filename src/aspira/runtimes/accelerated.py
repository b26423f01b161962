"""Serves each signature of a SavedModel with the runtime that is best for it.

TensorFlow stays loaded beside the accelerator: it serves the signatures that the accelerator
cannot, and answers the single requests that the accelerator declines, in its own words.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from aspira.contracts.events import AcceleratorProblem, EventBus, RuntimeChosen, RuntimesReleased
from aspira.contracts.servable import SignatureRuntime
from aspira.contracts.signatures import Signature
from aspira.contracts.tensors import Tensors
from aspira.runtimes.accelerator_choice import Candidate
from aspira.runtimes.accelerator_options import TENSORFLOW, AcceleratorOptions
from aspira.runtimes.accelerator_tasks import make_tasks, read_recorded
from aspira.runtimes.accelerators import AcceleratorFactory
from aspira.runtimes.options import WarmupOptions
from aspira.runtimes.signature_graph import StaysOnTensorflow
from aspira.runtimes.tensorflow import OpenModel, TensorflowLoader, TensorflowServable
from aspira.runtimes.warmup import replay_warmup


class AcceleratedLoader:
    """Loads one SavedModel directory into TensorFlow, and what can be into an accelerator."""

    def __init__(
        self,
        path: Path,
        *,
        tensorflow: TensorflowLoader,
        options: AcceleratorOptions,
        warmup: WarmupOptions,
        events: EventBus,
    ) -> None:
        self._path = path
        self._tensorflow = tensorflow
        self._options = options
        self._warmup = warmup
        self._events = events
        self._factory = AcceleratorFactory(options, path=path, events=events)

    def load(self) -> "AcceleratedServable":
        """Read, restore, initialize, compile, compare, warm up.

        Raises:
            ServingError: TensorFlow cannot serve the model, or int8 has no recorded requests.
        """
        opened = self._tensorflow.open()
        try:
            opened.servable.prepare()
            servable = AcceleratedServable(
                opened.servable,
                candidates=self._decide(opened),
                path=self._path,
                events=self._events,
            )
            replay_warmup(servable, path=self._path, options=self._warmup, events=self._events)
        except BaseException:
            opened.servable.unload()
            self._events.publish(RuntimesReleased(str(self._path)))
            raise
        return servable

    def _decide(self, opened: OpenModel) -> dict[str, Candidate]:
        candidates = {}
        for name, candidate in self._candidates(opened).items():
            candidates[name] = candidate
            self._events.publish(RuntimeChosen(str(self._path), name, candidate.choice))
        return candidates

    def _candidates(self, opened: OpenModel) -> dict[str, Candidate]:
        try:
            choice = self._factory.make_choice()
        except StaysOnTensorflow as reason:
            return dict.fromkeys(opened.servable.signatures, _on_tensorflow(reason))
        recorded = read_recorded(
            self._path, options=self._options, signatures=opened.servable.signatures
        )
        tasks = make_tasks(opened, path=self._path, recorded=recorded)
        return {
            name: _on_tensorflow(task)
            if isinstance(task, StaysOnTensorflow)
            else choice.decide(task, tensorflow=opened.servable)
            for name, task in tasks.items()
        }


def _on_tensorflow(reason: StaysOnTensorflow) -> Candidate:
    return Candidate(SignatureRuntime(TENSORFLOW, str(reason)))


class AcceleratedServable:
    """A model in TensorFlow, and what was compiled of it. Events name it by `path`."""

    def __init__(
        self,
        tensorflow: TensorflowServable,
        *,
        candidates: Mapping[str, Candidate],
        path: Path,
        events: EventBus,
    ) -> None:
        self._tensorflow = tensorflow
        self._runtimes = {name: candidate.choice for name, candidate in candidates.items()}
        self._compiled = {
            name: candidate.compiled
            for name, candidate in candidates.items()
            if candidate.compiled is not None
        }
        self._path = str(path)
        self._events = events
        self._declined: set[str] = set()

    @property
    def signatures(self) -> Mapping[str, Signature]:
        return self._tensorflow.signatures

    @property
    def runtimes(self) -> Mapping[str, SignatureRuntime]:
        """What serves each signature; see `contracts.servable.Accelerated`."""
        return self._runtimes

    @property
    def straight_signatures(self) -> AbstractSet[str]:
        """See `Unblocking`. What is compiled may wait for a request object, or for its threads."""
        return self._tensorflow.straight_signatures - self._compiled.keys()

    def run(self, signature_name: str, *, inputs: Tensors, outputs: tuple[str, ...]) -> Tensors:
        """See `Servable.run`."""
        compiled = self._compiled.get(signature_name)
        if compiled is not None:
            answer = compiled.try_run(inputs, outputs=outputs)
            if answer is not None:
                return answer
            self._tell_declined(signature_name)
        return self._tensorflow.run(signature_name, inputs=inputs, outputs=outputs)

    def run_session(
        self, feeds: Tensors, *, fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> None:
        """See `SessionServable.run_session`: tensors inside the graph are TensorFlow's alone."""
        self._tensorflow.run_session(feeds, fetches=fetches, targets=targets)

    def unload(self) -> None:
        self._compiled.clear()
        self._tensorflow.unload()
        self._events.publish(RuntimesReleased(self._path))

    def _tell_declined(self, signature_name: str) -> None:
        if signature_name in self._declined:
            return
        self._declined.add(signature_name)
        message = (
            f"Signature {signature_name}: TensorFlow answers requests that the accelerator "
            "declines for their dtypes, shapes or values; this is said once"
        )
        self._events.publish(AcceleratorProblem(self._path, message))
