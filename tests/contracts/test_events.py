import threading

from aspira.contracts.errors import Code
from aspira.contracts.events import (
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
    step = GenerationStepEnded(READY.servable_id, 5, 2, 0.1, first_tokens_s=(0.5,), gaps_s=())
    bus.publish(PROBLEM)
    bus.publish_generation(step)
    assert heard == [step]


def test_a_bus_without_subscribers_takes_events() -> None:
    heard: list[LifecycleEvent] = []
    bus = EventBus()
    bus.publish(PROBLEM)
    bus.publish_request(REQUEST)
    bus.subscribe_lifecycle(heard.append)
    assert heard == []


def test_a_servable_id_reads_as_in_tensorflow_servings_logs() -> None:
    assert str(READY.servable_id) == "{name: m version: 1}"
