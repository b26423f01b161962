"""Chooses the form in which a request is run: by its shapes, and by what else runs.

A run that is alone gets all threads. Runs beside each other get a few each: a run that shares its
threads' cores with others waits, spinning, for whichever of its threads lost its core.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from aspira.contracts.tensors import Tensors
from aspira.runtimes.openvino_form import Form

_MAX_PREPARE_S = 1.0
_MIN_RUNS_ALONE = 8


@dataclass(frozen=True, slots=True)
class Forms:
    """What was compiled for the same shapes; `beside` is None where one form has to do."""

    alone: Form
    beside: Form | None = None

    def choose(self, *, is_alone: bool) -> Form:
        return self.alone if is_alone or self.beside is None else self.beside

    @property
    def all(self) -> Sequence[Form]:
        return (self.alone,) if self.beside is None else (self.alone, self.beside)


class RunCount:
    """How many runs are in progress. A context is one run, and is told whether it counts as alone.

    Where requests come beside each other, some find no other run in progress, though others are
    on their way. So runs count as alone again once several in a row were.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_runs = 0
        self._num_runs_alone = _MIN_RUNS_ALONE

    def __enter__(self) -> bool:
        with self._lock:
            self._num_runs_alone = 0 if self._num_runs else self._num_runs_alone + 1
            self._num_runs += 1
            return self._num_runs_alone >= _MIN_RUNS_ALONE

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._num_runs -= 1


class OpenvinoSignature:
    """A compiled signature: `general` for all shapes, `one_row` for those of single requests.

    `runs` counts those of all signatures that share their threads' cores.
    """

    def __init__(self, general: Forms, *, runs: RunCount, one_row: Forms | None = None) -> None:
        self._general = general
        self._one_row = one_row
        self._runs = runs

    def prepare(self, samples: Sequence[Tensors]) -> None:
        """The first run of a shape takes several times as long as the next: have them now."""
        for inputs in samples:
            started_s = time.monotonic()
            self.try_all(inputs, outputs=())
            if time.monotonic() - started_s > _MAX_PREPARE_S:
                # Larger ones would take longer still, and gain little in proportion.
                return

    def try_run(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> Tensors | None:
        forms = self._forms_for(inputs)
        with self._runs as is_alone:
            return forms.choose(is_alone=is_alone).try_run(inputs, outputs=outputs)

    def try_all(self, inputs: Tensors, *, outputs: tuple[str, ...]) -> list[Tensors | None]:
        return [form.try_run(inputs, outputs=outputs) for form in self._forms_for(inputs).all]

    def _forms_for(self, inputs: Tensors) -> Forms:
        one_row = self._one_row
        is_one_row = one_row is not None and one_row.alone.has_shapes_of(inputs)
        return one_row if one_row is not None and is_one_row else self._general
