import tracemalloc

import pytest

from aspira.contracts.clock import SystemClock
from aspira.contracts.errors import Code, NotFound, Unavailable
from aspira.contracts.events import (
    EventBus,
    LoadAttemptFailed,
    ModelRemoved,
    RequestEnded,
    SourceProblem,
    VersionRetired,
    VersionStateChanged,
    WarmupFinished,
    WarmupRunEnded,
)
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.observability.lingering import LINGER_S
from aspira.observability.subscribers import ServingMetrics
from aspira.testing.clock import JumpClock

SERVABLE_ID = ServableId(ModelName("m"), Version(1))
GRPC_PREDICT = RequestEnded("m", 3, "predict", "grpc", Code.OK, duration_s=0.00002)
REST_PREDICT = GRPC_PREDICT._replace(entrypoint="rest")
REST_NOT_FOUND = REST_PREDICT._replace(version=None, code=Code.NOT_FOUND)


@pytest.fixture
def metrics() -> ServingMetrics:
    return ServingMetrics(clock=SystemClock())


def samples(metrics: ServingMetrics, family: str) -> dict[str, str]:
    """What a family prints, by labels; of a histogram, its count."""
    found = {}
    for line in metrics.render().decode().splitlines():
        if line.startswith((f"{family}{{", f"{family}_count{{")):
            series, value = line.rsplit(" ", 1)
            found[series[series.index("{") :]] = value
    return found


def test_families_exist_before_the_first_event(metrics: ServingMetrics) -> None:
    assert metrics.render().decode() == (
        "# TYPE :aspira:batch_size_limit gauge\n"
        "# TYPE :aspira:compiles_after_ready counter\n"
        "# TYPE :aspira:load_failures counter\n"
        "# TYPE :aspira:model_version_state gauge\n"
        "# TYPE :aspira:request_count counter\n"
        "# TYPE :aspira:request_latency histogram\n"
        "# TYPE :aspira:requests_waiting gauge\n"
        "# TYPE :aspira:run_time_fixed_usecs gauge\n"
        "# TYPE :aspira:run_time_per_row_usecs gauge\n"
        "# TYPE :aspira:signature_runtime gauge\n"
        "# TYPE :aspira:source_problems gauge\n"
        "# TYPE :tensorflow:serving:batching_session:input_batch_size histogram\n"
        "# TYPE :tensorflow:serving:batching_session:padding_size histogram\n"
        "# TYPE :tensorflow:serving:batching_session:processed_batch_size histogram\n"
        "# TYPE :tensorflow:serving:batching_session:queuing_latency histogram\n"
        "# TYPE :tensorflow:serving:batching_session:wrapped_run_count counter\n"
        "# TYPE :tensorflow:serving:model_warmup_latency histogram\n"
        "# TYPE :tensorflow:serving:model_warmup_records_read counter\n"
        "# TYPE :tensorflow:serving:request_count counter\n"
        "# TYPE :tensorflow:serving:request_example_count_total counter\n"
        "# TYPE :tensorflow:serving:request_example_counts histogram\n"
        "# TYPE :tensorflow:serving:request_latency histogram\n"
        "# TYPE :tensorflow:serving:runtime_latency histogram\n"
    )


def test_a_predict_counts_once_in_each_family(metrics: ServingMetrics) -> None:
    metrics.on_request(GRPC_PREDICT)
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        '{model_name="m",status="OK"}': "1"
    }
    assert samples(metrics, ":tensorflow:serving:request_latency") == {
        '{model_name="m",API="Predict",entrypoint="GRPC"}': "1"
    }
    assert samples(metrics, ":aspira:request_count") == {
        '{model_name="m",version="3",api="predict",entrypoint="grpc",status="OK"}': "1"
    }
    assert samples(metrics, ":aspira:request_latency") == {
        '{model_name="m",version="3",api="predict",entrypoint="grpc"}': "1"
    }


def test_latencies_are_microseconds(metrics: ServingMetrics) -> None:
    metrics.on_request(GRPC_PREDICT)
    page = metrics.render().decode()
    labels = 'model_name="m",API="Predict",entrypoint="GRPC"'
    assert f':tensorflow:serving:request_latency_bucket{{{labels},le="18"}} 0\n' in page
    assert f':tensorflow:serving:request_latency_bucket{{{labels},le="32.4"}} 1\n' in page
    assert f":tensorflow:serving:request_latency_sum{{{labels}}} 20\n" in page


@pytest.mark.parametrize(
    ("entrypoint", "api", "labels"),
    [
        ("grpc", "predict", 'API="Predict",entrypoint="GRPC"'),
        ("grpc", "classify", 'API="Classify",entrypoint="GRPC"'),
        ("grpc", "regress", 'API="Regress",entrypoint="GRPC"'),
        ("rest", "predict", 'API="predict",entrypoint="REST"'),
        ("rest", "classify", 'API="classify",entrypoint="REST"'),
        ("rest", "regress", 'API="regress",entrypoint="REST"'),
        ("rest", "metadata", 'API="",entrypoint="REST"'),
        ("rest", "status", 'API="",entrypoint="REST"'),
        ("rest", "", 'API="",entrypoint="REST"'),
    ],
)
def test_latency_labels_are_the_references(
    metrics: ServingMetrics, entrypoint: str, api: str, labels: str
) -> None:
    metrics.on_request(GRPC_PREDICT._replace(entrypoint=entrypoint, api=api))
    assert samples(metrics, ":tensorflow:serving:request_latency") == {
        f'{{model_name="m",{labels}}}': "1"
    }


@pytest.mark.parametrize("api", ["multi_inference", "metadata", "status", "reload_config"])
def test_other_grpc_calls_count_in_our_families_only(metrics: ServingMetrics, api: str) -> None:
    metrics.on_request(GRPC_PREDICT._replace(api=api))
    assert samples(metrics, ":tensorflow:serving:request_count") == {}
    assert samples(metrics, ":tensorflow:serving:request_latency") == {}
    assert samples(metrics, ":aspira:request_count") == {
        f'{{model_name="m",version="3",api="{api}",entrypoint="grpc",status="OK"}}': "1"
    }


def test_failures_count_but_have_no_latency(metrics: ServingMetrics) -> None:
    metrics.on_lifecycle(VersionStateChanged(SERVABLE_ID, "failed"))
    metrics.on_request(REST_NOT_FOUND)
    metrics.on_request(REST_NOT_FOUND)
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        '{model_name="m",status="NOT_FOUND"}': "2"
    }
    assert samples(metrics, ":aspira:request_count") == {
        '{model_name="m",version="",api="predict",entrypoint="rest",status="NOT_FOUND"}': "2"
    }
    assert samples(metrics, ":tensorflow:serving:request_latency") == {}
    assert samples(metrics, ":aspira:request_latency") == {}


def test_series_have_a_bound() -> None:
    metrics = ServingMetrics(clock=SystemClock(), max_num_series=3)
    for number in range(5):
        metrics.on_request(REST_PREDICT._replace(model_name=f"x{number}"))
    counts = samples(metrics, ":tensorflow:serving:request_count")
    assert len(counts) == 4
    assert counts['{model_name="__other__",status="__other__"}'] == "2"
    assert len(samples(metrics, ":aspira:request_count")) == 4
    assert len(samples(metrics, ":aspira:request_latency")) == 4


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.UNAVAILABLE])
def test_an_unknown_model_has_no_name_in_our_families(metrics: ServingMetrics, code: Code) -> None:
    for name in ("x", "y"):
        metrics.on_request(REST_NOT_FOUND._replace(model_name=name, code=code))
    status = code.name
    assert samples(metrics, ":aspira:request_count") == {
        '{model_name="__unknown__",version="",api="predict",entrypoint="rest",'
        f'status="{status}"}}': "2"
    }
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        f'{{model_name="x",status="{status}"}}': "1",
        f'{{model_name="y",status="{status}"}}': "1",
    }


def test_a_request_without_a_model_name_is_no_unknown_model(metrics: ServingMetrics) -> None:
    metrics.on_request(REST_NOT_FOUND._replace(model_name="", code=Code.INVALID_ARGUMENT))
    assert list(samples(metrics, ":aspira:request_count")) == [
        '{model_name="",version="",api="predict",entrypoint="rest",status="INVALID_ARGUMENT"}'
    ]


@pytest.mark.parametrize(
    "event", [VersionStateChanged(SERVABLE_ID, "new"), SourceProblem("m", "No versions")]
)
def test_a_model_is_known_from_its_first_event_on(
    metrics: ServingMetrics, event: VersionStateChanged | SourceProblem
) -> None:
    metrics.on_request(REST_NOT_FOUND)
    metrics.on_lifecycle(event)
    metrics.on_request(REST_NOT_FOUND)
    labels = 'version="",api="predict",entrypoint="rest",status="NOT_FOUND"'
    assert samples(metrics, ":aspira:request_count") == {
        f'{{model_name="__unknown__",{labels}}}': "1",
        f'{{model_name="m",{labels}}}': "1",
    }
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        '{model_name="m",status="NOT_FOUND"}': "2"
    }


def test_unknown_models_leave_room_for_real_ones() -> None:
    metrics = ServingMetrics(clock=SystemClock(), max_num_series=20, max_num_unknown_series=5)
    for number in range(100):
        metrics.on_request(REST_NOT_FOUND._replace(model_name=f"x{number}"))
    metrics.on_request(REST_NOT_FOUND._replace(model_name="x0"))
    metrics.on_request(REST_PREDICT)
    counts = samples(metrics, ":tensorflow:serving:request_count")
    assert len(counts) == 7
    assert counts['{model_name="__other__",status="__other__"}'] == "95"
    assert counts['{model_name="x0",status="NOT_FOUND"}'] == "2"
    assert counts['{model_name="m",status="OK"}'] == "1"
    assert len(samples(metrics, ":aspira:request_count")) == 2


def test_unknown_models_have_a_bound_by_default(metrics: ServingMetrics) -> None:
    for number in range(1_010):
        metrics.on_request(REST_NOT_FOUND._replace(model_name=f"x{number}"))
    assert len(samples(metrics, ":tensorflow:serving:request_count")) == 1_001


@pytest.mark.parametrize("event", [REST_NOT_FOUND, REST_PREDICT])
def test_long_names_are_not_kept(metrics: ServingMetrics, event: RequestEnded) -> None:
    metrics.on_request(event)
    tracemalloc.start()
    try:
        for number in range(50):
            metrics.on_request(event._replace(model_name=f"{number}" + "x" * 100_000))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1_000_000
    counts = samples(metrics, ":tensorflow:serving:request_count")
    assert counts['{model_name="__other__",status="__other__"}'] == "50"


def live(metrics: ServingMetrics, *states: str, servable_id: ServableId = SERVABLE_ID) -> None:
    """One life of a version, through these states."""
    for before, state in zip((None, *states), states, strict=False):
        metrics.on_lifecycle(VersionStateChanged(servable_id, state, previous_state=before))


def test_a_version_is_in_one_state(metrics: ServingMetrics) -> None:
    live(metrics, "new", "loading", "ready")
    live(metrics, "new", "loading", servable_id=ServableId(ModelName("m"), Version(2)))
    assert samples(metrics, ":aspira:model_version_state") == {
        '{model_name="m",version="1",state="ready"}': "1",
        '{model_name="m",version="2",state="loading"}': "1",
    }


def test_a_version_that_replaces_itself_is_in_two(metrics: ServingMetrics) -> None:
    live(metrics, "new", "loading", "ready")
    live(metrics, "new", "loading")
    assert samples(metrics, ":aspira:model_version_state") == {
        '{model_name="m",version="1",state="loading"}': "1",
        '{model_name="m",version="1",state="ready"}': "1",
    }


def test_how_a_life_ended_is_told_until_the_next_begins(metrics: ServingMetrics) -> None:
    live(metrics, "new", "loading", "failed")
    assert samples(metrics, ":aspira:model_version_state") == {
        '{model_name="m",version="1",state="failed"}': "1"
    }
    live(metrics, "new")
    assert samples(metrics, ":aspira:model_version_state") == {
        '{model_name="m",version="1",state="new"}': "1"
    }


OLD = ServableId(ModelName("m"), Version(3))
NEW = ServableId(ModelName("m"), Version(4))
BY_VERSION = (":aspira:model_version_state", ":aspira:request_count", ":aspira:request_latency")
BY_PATH = ":tensorflow:serving:model_warmup_records_read"


def versions_told(metrics: ServingMetrics) -> list[set[str]]:
    """Per family, the versions on the page."""
    return [
        {version for version in ("3", "4") for labels in samples(metrics, family)
         if f'version="{version}"' in labels}
        for family in BY_VERSION
    ]  # fmt: skip


def replace_version(metrics: ServingMetrics) -> None:
    """Version 3 served and was replaced by version 4."""
    live(metrics, "new", "loading", "ready", servable_id=OLD)
    metrics.on_lifecycle(WarmupFinished("/m/3", 1, 0.1))
    metrics.on_request(GRPC_PREDICT)
    live(metrics, "new", "loading", "ready", servable_id=NEW)
    metrics.on_lifecycle(WarmupFinished("/m/4", 1, 0.1))
    metrics.on_request(GRPC_PREDICT._replace(version=4))
    metrics.on_lifecycle(VersionStateChanged(OLD, "gone", previous_state="ready"))
    metrics.on_lifecycle(VersionRetired(OLD, "/m/3"))


def test_a_version_that_has_ended_leaves_after_a_while() -> None:
    clock = JumpClock()
    metrics = ServingMetrics(clock=clock)
    replace_version(metrics)
    clock.jump(LINGER_S - 1)
    assert versions_told(metrics) == [{"3", "4"}] * 3
    clock.jump(1)
    assert versions_told(metrics) == [{"4"}] * 3
    assert samples(metrics, BY_PATH) == {'{model_path="/m/4",status="OK"}': "1"}
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        '{model_name="m",status="OK"}': "2"
    }
    metrics.on_request(GRPC_PREDICT._replace(version=4))
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        '{model_name="m",status="OK"}': "3"
    }


def test_what_has_ended_leaves_though_nobody_scrapes() -> None:
    """Else a server that nobody watches would keep the series of every version it ever had."""
    clock = JumpClock()
    metrics = ServingMetrics(clock=clock)
    tracemalloc.start()
    try:
        for number in range(2_000):
            servable_id = ServableId(ModelName("m"), Version(number))
            live(metrics, "new", "gone", servable_id=servable_id)
            metrics.on_request(GRPC_PREDICT._replace(version=number))
            metrics.on_lifecycle(VersionRetired(servable_id, f"/m/{number}"))
            clock.jump(LINGER_S / 10)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 200_000


def test_a_version_that_comes_back_stays() -> None:
    clock = JumpClock()
    metrics = ServingMetrics(clock=clock)
    replace_version(metrics)
    live(metrics, "new", "loading", servable_id=OLD)
    clock.jump(LINGER_S)
    assert versions_told(metrics) == [{"3", "4"}] * 3


def test_an_older_life_leaves_alone() -> None:
    clock = JumpClock()
    metrics = ServingMetrics(clock=clock)
    live(metrics, "new", "loading", "ready", servable_id=OLD)
    metrics.on_lifecycle(WarmupFinished("/a/3", 1, 0.1))
    metrics.on_request(GRPC_PREDICT)
    live(metrics, "new", "loading", "ready", servable_id=OLD)
    metrics.on_lifecycle(WarmupFinished("/b/3", 1, 0.1))
    metrics.on_lifecycle(VersionStateChanged(OLD, "gone", previous_state="ready"))
    metrics.on_lifecycle(VersionRetired(OLD, "/a/3"))
    clock.jump(LINGER_S)
    assert samples(metrics, ":aspira:model_version_state") == {
        '{model_name="m",version="3",state="ready"}': "1"
    }
    assert samples(metrics, BY_PATH) == {'{model_path="/b/3",status="OK"}': "1"}
    assert len(samples(metrics, ":aspira:request_count")) == 1


def test_a_model_that_was_removed_leaves_after_a_while() -> None:
    clock = JumpClock()
    metrics = ServingMetrics(clock=clock)
    for name in ("m", "kept"):
        live(metrics, "new", "ready", servable_id=ServableId(ModelName(name), Version(3)))
        metrics.on_lifecycle(SourceProblem(name, ""))
        metrics.on_request(GRPC_PREDICT._replace(model_name=name))
    metrics.on_lifecycle(ModelRemoved("m"))
    assert 'model_name="m"' in metrics.render().decode()
    clock.jump(LINGER_S)
    page = metrics.render().decode()
    assert 'model_name="m"' not in page
    assert page.count('model_name="kept",status="OK"') == 1
    metrics.on_request(REST_NOT_FOUND)
    assert samples(metrics, ":aspira:request_count").keys() == {
        '{model_name="kept",version="3",api="predict",entrypoint="grpc",status="OK"}',
        '{model_name="__unknown__",version="",api="predict",entrypoint="rest",status="NOT_FOUND"}',
    }


@pytest.mark.parametrize(
    "back",
    [VersionStateChanged(OLD, "new"), SourceProblem("m", "Could not find base path")],
)
def test_a_model_that_is_configured_again_stays(back: VersionStateChanged | SourceProblem) -> None:
    clock = JumpClock()
    metrics = ServingMetrics(clock=clock)
    metrics.on_request(GRPC_PREDICT)
    metrics.on_lifecycle(ModelRemoved("m"))
    metrics.on_lifecycle(back)
    clock.jump(LINGER_S)
    assert samples(metrics, ":tensorflow:serving:request_count") == {
        '{model_name="m",status="OK"}': "1"
    }


def test_load_failures_count_by_code(metrics: ServingMetrics) -> None:
    metrics.on_lifecycle(LoadAttemptFailed(SERVABLE_ID, Unavailable("later"), retries_left=1))
    metrics.on_lifecycle(LoadAttemptFailed(SERVABLE_ID, NotFound("no"), retries_left=1))
    metrics.on_lifecycle(LoadAttemptFailed(SERVABLE_ID, NotFound("no"), retries_left=0))
    assert samples(metrics, ":aspira:load_failures") == {
        '{model_name="m",version="1",code="NOT_FOUND"}': "2",
        '{model_name="m",version="1",code="UNAVAILABLE"}': "1",
    }


def test_a_source_problem_lasts_until_it_is_cleared(metrics: ServingMetrics) -> None:
    metrics.on_lifecycle(SourceProblem("m", "No versions of servable m found"))
    assert samples(metrics, ":aspira:source_problems") == {'{model_name="m"}': "1"}
    metrics.on_lifecycle(SourceProblem("m", ""))
    assert samples(metrics, ":aspira:source_problems") == {'{model_name="m"}': "0"}


def test_warmup_counts_records_and_time(metrics: ServingMetrics) -> None:
    metrics.on_lifecycle(WarmupFinished("/models/m/1", num_records=7, duration_s=0.25))
    labels = '{model_path="/models/m/1",status="OK"}'
    assert samples(metrics, ":tensorflow:serving:model_warmup_records_read") == {labels: "7"}
    assert samples(metrics, ":tensorflow:serving:model_warmup_latency") == {labels: "1"}
    assert f":tensorflow:serving:model_warmup_latency_sum{labels} 250000\n" in (
        metrics.render().decode()
    )


def test_it_subscribes_to_the_bus(metrics: ServingMetrics) -> None:
    bus = EventBus()
    metrics.attach(bus)
    bus.publish_request(GRPC_PREDICT)
    bus.publish(SourceProblem("m", ""))
    assert len(samples(metrics, ":tensorflow:serving:request_count")) == 1
    assert len(samples(metrics, ":aspira:source_problems")) == 1


def test_a_number_is_read_by_tensorflows_name_of_it(metrics: ServingMetrics) -> None:
    name = "/tensorflow/serving/model_warmup_records_read"
    assert metrics.read_first(name) == 0
    for path, num_records in (("/b/1", 7), ("/a/1", 5)):
        metrics.on_lifecycle(WarmupFinished(path, num_records=num_records, duration_s=0.25))
    assert metrics.read_first(name) == 5
    assert metrics.read_first("/tensorflow/serving/model_warmup_latency") == 0
    assert metrics.read_first("/nothing") == 0


RUNTIME_LATENCY = ":tensorflow:serving:runtime_latency"


@pytest.mark.parametrize("entrypoint", ["grpc", "rest"])
@pytest.mark.parametrize("code", [Code.OK, Code.INTERNAL])
def test_a_run_counts_however_its_request_came_and_ended(
    metrics: ServingMetrics, entrypoint: str, code: Code
) -> None:
    event = GRPC_PREDICT._replace(entrypoint=entrypoint, code=code)
    # Requests alike in all but the run, in either order.
    metrics.on_request(event)
    metrics.on_request(event._replace(run_s=0.000015))
    metrics.on_request(event._replace(run_s=0.000025))
    labels = 'model_name="m",API="Predict",runtime="TF1"'
    assert samples(metrics, RUNTIME_LATENCY) == {f"{{{labels}}}": "2"}
    page = metrics.render().decode()
    assert f'{RUNTIME_LATENCY}_bucket{{{labels},le="18"}} 1\n' in page
    assert f"{RUNTIME_LATENCY}_sum{{{labels}}} 40\n" in page


def test_a_request_without_a_run_makes_no_series(metrics: ServingMetrics) -> None:
    metrics.on_request(REST_NOT_FOUND)
    assert samples(metrics, RUNTIME_LATENCY) == {}


def test_runs_of_warm_up_count_with_those_of_requests(metrics: ServingMetrics) -> None:
    metrics.on_request(GRPC_PREDICT._replace(api="classify", run_s=0.00002))
    for api in ("classify", "regress", "multi_inference", ""):
        metrics.on_lifecycle(WarmupRunEnded("m", api, 0.00002))
    assert samples(metrics, RUNTIME_LATENCY) == {
        '{model_name="m",API="Classify",runtime="TF1"}': "2",
        '{model_name="m",API="Regress",runtime="TF1"}': "1",
    }
    assert f'{RUNTIME_LATENCY}_sum{{model_name="m",API="Classify",runtime="TF1"}} 40' in (
        metrics.render().decode()
    )


def test_examples_of_multi_inference_are_counted(metrics: ServingMetrics) -> None:
    event = GRPC_PREDICT._replace(api="multi_inference", run_s=0.1)
    metrics.on_request(event._replace(num_examples=3))
    metrics.on_request(event._replace(num_examples=4))
    metrics.on_request(GRPC_PREDICT)
    total = ":tensorflow:serving:request_example_count_total"
    counts = ":tensorflow:serving:request_example_counts"
    assert samples(metrics, total) == {'{model="m"}': "7"}
    assert samples(metrics, counts) == {'{model="m"}': "2"}
    page = metrics.render().decode()
    assert f'{counts}_bucket{{model="m",le="4"}} 1\n{counts}_bucket{{model="m",le="8"}} 2' in page
    assert (
        f'{counts}_bucket{{model="m",le="16384"}} 2\n{counts}_bucket{{model="m",le="+Inf"}}' in page
    )
    assert samples(metrics, RUNTIME_LATENCY) == {}
