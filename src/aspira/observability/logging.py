"""Log lines for what happens to models, in TensorFlow's format and, where they fit, its words.

Scripts wait for lines such as `Successfully loaded servable version {name: m version: 1}`, so the
texts are those of TensorFlow Serving's `core/loader_harness.cc` and its neighbours. Requests are
not logged.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TextIO

from aspira.contracts.events import (
    AcceleratorProblem,
    CompiledAfterReady,
    ConfigApplied,
    ConfigApplying,
    LifecycleEvent,
    LoadAttemptFailed,
    ModelRemoved,
    RecordingEnded,
    RecordingStarted,
    RuntimeChosen,
    RuntimesReleased,
    SourceProblem,
    VersionPending,
    VersionRetired,
    VersionStateChanged,
    WarmupFinished,
    WarmupRunEnded,
)
from aspira.observability.log_lines import format_line, write_line

_STATE_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "new": "New servable version {}",
        "loading": "Loading servable version {}",
        "ready": "Successfully loaded servable version {}",
        "draining": "Quiescing servable version {}",
        "unloading": "Done quiescing servable version {}",
        "gone": "Done unloading servable version {}",
    }
)


@dataclass(frozen=True, slots=True)
class _Line:
    """`severity` is I, W or E; `area` is the part of the server it happened in."""

    severity: str
    area: str
    message: str


class EventLogger:
    """Writes one line per event about a model, never one about a request.

    `wall_time_s` gives seconds since the epoch; lines show it in local time.
    """

    def __init__(self, stream: TextIO, *, wall_time_s: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._wall_time_s = wall_time_s

    def on_event(self, event: LifecycleEvent) -> None:
        for line in _describe(event):
            self._write(line)

    def _write(self, line: _Line) -> None:
        text = format_line(
            line.message,
            severity=line.severity,
            source=f"aspira/{line.area}",
            wall_time_s=self._wall_time_s(),
        )
        write_line(self._stream, line=text)


def _describe(event: LifecycleEvent) -> list[_Line]:
    """The lines of an event; none for one that others have told of in other words."""
    match event:
        case VersionRetired() | ModelRemoved() | WarmupRunEnded() | RuntimesReleased():
            return []
        case ConfigApplying(model_names=names):
            texts = ["Adding/updating models.", *(f" (Re-)adding model: {name}" for name in names)]
            return [_Line("I", "config", text) for text in texts]
        case ConfigApplied():
            return [_Line("I", "config", "Finished adding/updating models")]
        case VersionPending(servable_id=servable_id, reason=reason):
            return [_Line("I", "source", f"Not loading servable version {servable_id}: {reason}")]
        case VersionStateChanged():
            return [_describe_state(event)]
        case LoadAttemptFailed():
            return [_Line("E", "lifecycle", _failed_load_text(event))]
        case SourceProblem():
            return [_describe_source(event)]
        case WarmupFinished():
            return [_Line("I", "warmup", _warmup_text(event))]
        case RecordingStarted() | RecordingEnded():
            return [_Line("I", "warmup", _recording_text(event))]
        case _:
            return [_describe_accelerator(event)]


def _describe_state(event: VersionStateChanged) -> _Line:
    ending = f": {event.error}" if event.error is not None else ""
    if event.state == "failed":
        return _Line("E", "lifecycle", f"Servable {event.servable_id} cannot be loaded{ending}")
    text = _STATE_TEXTS[event.state].format(event.servable_id)
    return _Line("I", "lifecycle", text + ending)


def _failed_load_text(event: LoadAttemptFailed) -> str:
    text = f"Loading servable: {event.servable_id} failed: {event.error}"
    # The last one is followed by the line that the version cannot be loaded.
    return text + (f"; retries left: {event.retries_left}" if event.retries_left else "")


def _describe_accelerator(event: RuntimeChosen | AcceleratorProblem | CompiledAfterReady) -> _Line:
    match event:
        case RuntimeChosen():
            return _Line("I", "accelerator", _runtime_text(event))
        case AcceleratorProblem():
            return _Line("W", "accelerator", f"{event.path}: {event.message}")
        case CompiledAfterReady():
            text = f"Signature {event.signature_name} of {event.path} compiled during a request"
            return _Line("W", "accelerator", text)


def _describe_source(event: SourceProblem) -> _Line:
    if event.message:
        return _Line("W", "source", event.message)
    return _Line(
        "I",
        "source",
        f"Nothing is wrong with the base path of servable {event.model_name} any longer",
    )


def _warmup_text(event: WarmupFinished) -> str:
    return (
        f"Finished reading warmup data for model at {event.path}. "
        f"Number of warmup records read: {event.num_records}. "
        f"Elapsed time (microseconds): {int(event.duration_s * 1e6)}."
    )


def _recording_text(event: RecordingStarted | RecordingEnded) -> str:
    if isinstance(event, RecordingEnded):
        return f"Recorded {event.num_records} requests of model {event.model_name}"
    return (
        f"Recording requests of model {event.model_name}, with all that they hold, for whoever "
        f"asked at the admin port: at most {event.num_records} in {event.timeout_s:g} s"
    )


def _runtime_text(event: RuntimeChosen) -> str:
    choice = event.choice
    text = (
        f"Signature {event.signature_name} of {event.path} is served by {choice.runtime} "
        f"in {choice.precision}: {choice.reason}"
    )
    if choice.tensorflow_s is not None and choice.accelerated_s is not None:
        text += (
            f" (microseconds for the same runs: TensorFlow {choice.tensorflow_s * 1e6:.0f}, "
            f"accelerator {choice.accelerated_s * 1e6:.0f})"
        )
    return text + (f"; answers differ by {choice.difference}" if choice.difference else "")
