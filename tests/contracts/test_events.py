import logging
import threading
from collections.abc import Callable

import pytest

from aspira.contracts.errors import Code
from aspira.contracts.events import (
    BatchEnded,
    EventBus,
    GenerationEvent,
    GenerationStepEnded,
    LifecycleEvent,
    RequestEnded,
    SourceProblem,
    VersionStateChanged,
    WarmupFinished,
)
from aspira.contracts.identity import ModelName, ServableId, Version

REQUEST = RequestEnded("m", 1, "predict", "grpc", Code.OK, duration_s=0.5)
PROBLEM = SourceProblem("m", "gone")
READY = VersionStateChanged(ServableId(ModelName("m"), Version(1)), "ready")
BATCH = BatchEnded(READY.servable_id, (1,), (0.0,), 1, 1, 1, run_s=0.1)
STEP = GenerationStepEnded(READY.servable_id, 5, 2, 0.1, first_tokens_s=(0.5,), gaps_s=())


def test_each_event_reaches_every_subscriber_in_order() -> None:
    bus = EventBus()
    first: list[LifecycleEvent] = []
    second: list[LifecycleEvent] = []
    bus.subscribe_lifecycle(first.append)
    bus.subscribe_lifecycle(second.append)
    for event in (PROBLEM, READY, WarmupFinished("/m/1", 1, 0.5)):
        bus.publish(event)
    assert first == second == [PROBLEM, READY, WarmupFinished("/m/1", 1, 0.5)]


def test_requests_have_a_line_of_their_own() -> None:
    bus = EventBus()
    requests: list[RequestEnded] = []
    others: list[LifecycleEvent] = []
    bus.subscribe_requests(requests.append)
    bus.subscribe_lifecycle(others.append)
    bus.publish(PROBLEM)
    bus.publish_request(REQUEST)
    assert requests == [REQUEST]
    assert others == [PROBLEM]


def test_events_are_delivered_on_the_publishers_thread() -> None:
    bus = EventBus()
    threads: list[int] = []
    bus.subscribe_lifecycle(lambda _: threads.append(threading.get_ident()))
    publisher = threading.Thread(target=bus.publish, args=(PROBLEM,))
    publisher.start()
    publisher.join()
    assert threads == [publisher.ident]


def test_generations_have_a_line_of_their_own() -> None:
    bus = EventBus()
    heard: list[GenerationEvent] = []
    bus.subscribe_generations(heard.append)
    bus.publish(PROBLEM)
    bus.publish_generation(STEP)
    assert heard == [STEP]


@pytest.mark.parametrize(
    ("subscribe", "publish", "event"),
    [
        (EventBus.subscribe_lifecycle, EventBus.publish, READY),
        (EventBus.subscribe_requests, EventBus.publish_request, REQUEST),
        (EventBus.subscribe_batches, EventBus.publish_batch, BATCH),
        (EventBus.subscribe_generations, EventBus.publish_generation, STEP),
    ],
)
def test_a_subscriber_that_raises_harms_neither_publishers_nor_others(
    subscribe: Callable[[EventBus, Callable[[object], None]], None],
    publish: Callable[[EventBus, object], None],
    event: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = EventBus()
    heard: list[object] = []
    subscribe(bus, lambda _: 1 // 0)
    subscribe(bus, heard.append)
    for _ in range(3):
        publish(bus, event)
    assert heard == [event] * 3
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert type(event).__name__ in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_failure_at_another_kind_of_event_is_said_too(caplog: pytest.LogCaptureFixture) -> None:
    bus = EventBus()
    bus.subscribe_lifecycle(lambda _: 1 // 0)
    for event in (PROBLEM, READY, PROBLEM, READY):
        bus.publish(event)
    assert len(caplog.records) == 2


def test_a_bus_without_subscribers_takes_events() -> None:
    heard: list[LifecycleEvent] = []
    bus = EventBus()
    bus.publish(PROBLEM)
    bus.publish_request(REQUEST)
    bus.subscribe_lifecycle(heard.append)
    assert heard == []


def test_a_servable_id_reads_as_in_tensorflow_servings_logs() -> None:
    assert str(READY.servable_id) == "{name: m version: 1}"
