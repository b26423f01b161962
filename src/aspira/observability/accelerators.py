"""Which runtime serves each signature, as metrics, and how often a request met a compiler."""

from aspira.contracts.events import (
    CompiledAfterReady,
    LifecycleEvent,
    RuntimeChosen,
    RuntimesReleased,
)
from aspira.observability.metrics import Counter, Family, Gauge, Labels


class AcceleratorMetrics:
    """Notes events that know versions by their directories, as TensorFlow's warm-up metrics do."""

    def __init__(self) -> None:
        self._runtime = Gauge(
            "/aspira/signature_runtime",
            label_names=("model_path", "signature_name", "runtime", "precision"),
        )
        self._late_compiles = Counter(
            "/aspira/compiles_after_ready", label_names=("model_path", "signature_name")
        )
        self._chosen: dict[str, list[Labels]] = {}

    @property
    def families(self) -> tuple[Family, ...]:
        return (self._runtime, self._late_compiles)

    def note(self, event: LifecycleEvent) -> None:
        match event:
            case RuntimeChosen(path=path, signature_name=name, choice=choice):
                chosen = (path, name, choice.runtime, choice.precision)
                self._chosen.setdefault(path, []).append(chosen)
                self._runtime.assign(chosen, value=1)
                # So that a scrape can tell none from unknown.
                self._late_compiles.find((path, name))
            case RuntimesReleased(path=path):
                for labels in self._chosen.pop(path, ()):
                    self._runtime.remove(labels)
            case CompiledAfterReady(path=path, signature_name=name):
                self._late_compiles.increment((path, name))
