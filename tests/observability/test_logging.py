import io
import re
import time

import pytest

from aspira.contracts.errors import Cancelled, Code, Internal, NotFound, ServingError
from aspira.contracts.events import (
    AcceleratorProblem,
    CompiledAfterReady,
    ConfigApplied,
    ConfigApplying,
    EventBus,
    LifecycleEvent,
    LoadAttemptFailed,
    ModelRemoved,
    RecordingEnded,
    RecordingStarted,
    RequestEnded,
    RuntimeChosen,
    RuntimesReleased,
    SourceProblem,
    VersionPending,
    VersionRetired,
    VersionStateChanged,
    WarmupFinished,
)
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.contracts.servable import SignatureRuntime
from aspira.lifecycle.version_state import VersionState
from aspira.observability.logging import EventLogger

SERVABLE_ID = ServableId(ModelName("m"), Version(1))
MOMENT = (2024, 5, 6, 12, 34, 56, 0, 0, -1)


def logged(event: LifecycleEvent) -> str:
    stream = io.StringIO()
    EventLogger(stream, wall_time_s=lambda: time.mktime(MOMENT) + 0.25).on_event(event)
    return stream.getvalue()


def test_the_line_format_is_tensorflows() -> None:
    assert logged(VersionStateChanged(SERVABLE_ID, "ready")) == (
        "2024-05-06 12:34:56.250000: I aspira/lifecycle] "
        "Successfully loaded servable version {name: m version: 1}\n"
    )


def test_the_clock_is_the_machines_unless_told_otherwise() -> None:
    stream = io.StringIO()
    EventLogger(stream).on_event(VersionStateChanged(SERVABLE_ID, "ready"))
    match = re.match(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d{6}: I ", stream.getvalue())
    assert match is not None
    age_s = time.time() - time.mktime(time.strptime(match[1], "%Y-%m-%d %H:%M:%S"))
    assert 0 <= age_s < 60


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ("new", None, "I aspira/lifecycle] New servable version {}"),
        ("loading", None, "I aspira/lifecycle] Loading servable version {}"),
        ("ready", None, "I aspira/lifecycle] Successfully loaded servable version {}"),
        ("draining", None, "I aspira/lifecycle] Quiescing servable version {}"),
        ("unloading", None, "I aspira/lifecycle] Done quiescing servable version {}"),
        ("gone", None, "I aspira/lifecycle] Done unloading servable version {}"),
        ("failed", None, "E aspira/lifecycle] Servable {} cannot be loaded"),
        (
            "failed",
            NotFound("no such file"),
            "E aspira/lifecycle] Servable {} cannot be loaded: NOT_FOUND: no such file",
        ),
        (
            "gone",
            Cancelled("Loading of servable cancelled"),
            (
                "I aspira/lifecycle] Done unloading servable version {}: "
                "CANCELLED: Loading of servable cancelled"
            ),
        ),
    ],
)
def test_states(state: str, error: ServingError | None, text: str) -> None:
    line = logged(VersionStateChanged(SERVABLE_ID, state, error))
    assert line.split(": ", 1)[1] == text.replace("{}", "{name: m version: 1}") + "\n"


@pytest.mark.parametrize("state", VersionState)
def test_every_state_has_a_text(state: VersionState) -> None:
    assert logged(VersionStateChanged(SERVABLE_ID, state.value)).count("\n") == 1


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            LoadAttemptFailed(SERVABLE_ID, NotFound("no file"), retries_left=0),
            "E aspira/lifecycle] Loading servable: {name: m version: 1} failed: NOT_FOUND: no file",
        ),
        (
            LoadAttemptFailed(SERVABLE_ID, NotFound("no file"), retries_left=2),
            (
                "E aspira/lifecycle] Loading servable: {name: m version: 1} failed: "
                "NOT_FOUND: no file; retries left: 2"
            ),
        ),
        (
            SourceProblem("m", "No versions of servable m found under base path /m."),
            "W aspira/source] No versions of servable m found under base path /m.",
        ),
        (
            VersionPending(SERVABLE_ID, "it is still being written"),
            (
                "I aspira/source] Not loading servable version {name: m version: 1}: "
                "it is still being written"
            ),
        ),
        (ConfigApplied(), "I aspira/config] Finished adding/updating models"),
        (
            SourceProblem("m", ""),
            "I aspira/source] Nothing is wrong with the base path of servable m any longer",
        ),
        (
            WarmupFinished("/models/m/1", num_records=7, duration_s=0.25),
            (
                "I aspira/warmup] Finished reading warmup data for model at /models/m/1. "
                "Number of warmup records read: 7. Elapsed time (microseconds): 250000."
            ),
        ),
        (
            RecordingStarted("m", num_records=100, timeout_s=60.0),
            (
                "I aspira/warmup] Recording requests of model m, with all that they hold, for "
                "whoever asked at the admin port: at most 100 in 60 s"
            ),
        ),
        (
            RecordingEnded("m", num_records=3),
            "I aspira/warmup] Recorded 3 requests of model m",
        ),
    ],
)
def test_other_events(event: LifecycleEvent, text: str) -> None:
    assert logged(event).split(": ", 1)[1] == text + "\n"


def test_a_configuration_is_a_line_for_each_model() -> None:
    lines = logged(ConfigApplying(("a", "b"))).splitlines()
    assert [line.split("] ", 1)[1] for line in lines] == [
        "Adding/updating models.",
        " (Re-)adding model: a",
        " (Re-)adding model: b",
    ]


@pytest.mark.parametrize("event", [VersionRetired(SERVABLE_ID, "/m/1"), ModelRemoved("m")])
def test_what_others_tell_is_not_told_twice(event: LifecycleEvent) -> None:
    assert logged(event) == ""


def test_an_event_is_one_line_whatever_the_error_says() -> None:
    line = logged(LoadAttemptFailed(SERVABLE_ID, Internal("a\n\tb"), retries_left=0))
    assert line.endswith(" failed: INTERNAL: a\\n\tb\n")
    assert line.count("\n") == 1


def test_requests_are_not_logged() -> None:
    stream, bus = io.StringIO(), EventBus()
    bus.subscribe_lifecycle(EventLogger(stream).on_event)
    bus.publish_request(RequestEnded("m", 1, "predict", "grpc", Code.INTERNAL, 0.1))
    assert stream.getvalue() == ""
    bus.publish(VersionStateChanged(SERVABLE_ID, "ready"))
    assert stream.getvalue() != ""


def test_a_log_that_cannot_be_written_is_no_failure() -> None:
    closed = io.StringIO()
    closed.close()
    EventLogger(closed).on_event(VersionStateChanged(SERVABLE_ID, "ready"))


def test_each_line_is_flushed() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw)
    EventLogger(stream).on_event(VersionStateChanged(SERVABLE_ID, "ready"))
    assert raw.getvalue().endswith(b"{name: m version: 1}\n")


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            RuntimeChosen("/m/1", "s", SignatureRuntime("tensorflow", "its op X has state")),
            (
                "I aspira/accelerator] Signature s of /m/1 is served by tensorflow in f32: "
                "its op X has state\n"
            ),
        ),
        (
            RuntimeChosen(
                "/m/1",
                "s",
                SignatureRuntime("openvino", "openvino is faster", "bf16", "1e-3", 0.004, 0.001),
            ),
            (
                "I aspira/accelerator] Signature s of /m/1 is served by openvino in bf16: "
                "openvino is faster (microseconds for the same runs: TensorFlow 4000, accelerator "
                "1000); answers differ by 1e-3\n"
            ),
        ),
        (AcceleratorProblem("/m/1", "too bad"), "W aspira/accelerator] /m/1: too bad\n"),
        (
            CompiledAfterReady("/m/1", "s"),
            "W aspira/accelerator] Signature s of /m/1 compiled during a request\n",
        ),
    ],
)
def test_accelerators(event: LifecycleEvent, text: str) -> None:
    assert logged(event).endswith(f": {text}")


def test_what_another_line_says_is_not_said_twice() -> None:
    assert logged(RuntimesReleased("/m/1")) == ""
