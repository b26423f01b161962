from aspira.batching.cost_model import RunCost
from aspira.batching.scheduler import BatchingStatistics
from aspira.contracts.clock import SystemClock
from aspira.contracts.events import BatchEnded, EventBus
from aspira.contracts.identity import ModelName, ServableId, Version
from aspira.observability.subscribers import ServingMetrics

M_1 = ServableId(ModelName("m"), Version(1))


def lines(metrics: ServingMetrics, text: str) -> list[str]:
    page = metrics.render([(M_1, BatchingStatistics(7, 32, RunCost(0.0015, 20e-6)))])
    return [line for line in page.decode().splitlines() if text in line and line[0] != "#"]


def test_batches_count_under_the_originals_names() -> None:
    metrics, events = ServingMetrics(clock=SystemClock()), EventBus()
    metrics.attach(events)
    events.publish_batch(BatchEnded(M_1, (1, 2), (50e-6, 110e-6), 1, 3, 4, 0.001))
    prefix = ":tensorflow:serving:batching_session:"
    assert lines(metrics, "wrapped_run_count") == [f"{prefix}wrapped_run_count{{}} 1"]
    waits = lines(metrics, "queuing_latency")
    assert waits[:2] == [
        f'{prefix}queuing_latency_bucket{{thread_pool_name="",le="100"}} 1',
        f'{prefix}queuing_latency_bucket{{thread_pool_name="",le="120"}} 2',
    ]
    assert f'{prefix}padding_size_sum{{execution_batch_size="4"}} 1' in lines(metrics, "padding")
    assert f"{prefix}processed_batch_size_sum{{}} 4" in lines(metrics, "processed")
    assert f"{prefix}input_batch_size_sum{{}} 3" in lines(metrics, "input_batch")
    assert f"{prefix}input_batch_size_count{{}} 2" in lines(metrics, "input_batch")


def test_queues_are_told_as_they_are_now() -> None:
    metrics = ServingMetrics(clock=SystemClock())
    labels = '{model_name="m",version="1"}'
    assert lines(metrics, ":aspira:") == [
        f":aspira:batch_size_limit{labels} 32",
        f":aspira:requests_waiting{labels} 7",
        f":aspira:run_time_fixed_usecs{labels} 1500",
        f":aspira:run_time_per_row_usecs{labels} 20",
    ]
    assert b":aspira:requests_waiting{" not in metrics.render()
