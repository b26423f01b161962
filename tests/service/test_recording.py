import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from aspira.app import Server
from aspira.contracts.errors import AlreadyExists, InvalidArgument, NotFound, ServingError
from aspira.contracts.examples import ExamplesRequest, InferenceTask, MultiInferenceRequest
from aspira.contracts.identity import ModelName, ModelSpec, Version
from aspira.contracts.inference import PredictRequest
from aspira.contracts.signatures import REGRESS_METHOD
from aspira.service.examples import classify, multi_inference, regress
from aspira.service.inference import InferenceService
from aspira.service.recorder import RecordingOrder
from aspira.service.recording import Recording, RecordingService
from example_toys import FixedServable, strings
from serving_toys import make_toy_loader, running, single_model, write_version

SPEC = ModelSpec(ModelName("m"))
ORDER = RecordingOrder(SPEC, timeout_s=30)
PREDICT = PredictRequest(SPEC, {"x": np.float32([1, 2])})
EXAMPLES = strings(
    *(
        tf.train.Example(
            features=tf.train.Features(
                feature={"a": tf.train.Feature(int64_list=tf.train.Int64List(value=[n]))}
            )
        ).SerializeToString()
        for n in (1, 2)
    )
)

Scenario = Callable[[InferenceService, RecordingService], Awaitable[None]]


def play(scenario: Scenario, *, base_path: Path, servable: FixedServable | None = None) -> None:
    """With version 1 of `m` ready."""
    write_version(base_path, version=1)
    make_loader = servable.make_runtime_loader if servable else make_toy_loader

    async def act() -> None:
        settings = single_model(base_path)
        async with (
            asyncio.timeout(30),
            running(settings, make_runtime_loader=make_loader) as server,
        ):
            await scenario(server._recording._inference, server._recording)

    asyncio.run(act())


async def record(
    recording: RecordingService, order: RecordingOrder, *, during: Callable[[], Awaitable[object]]
) -> Recording:
    task = asyncio.create_task(recording.record(order))
    await asyncio.sleep(0)
    await during()
    return await task


def logs_of(recording: Recording, *, directory: Path) -> list[PredictionLog]:
    file = directory / "records"
    file.write_bytes(recording.content)
    records = tf.compat.v1.io.tf_record_iterator(str(file))
    return [PredictionLog.FromString(record) for record in records]


def test_predictions_are_recorded(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        order = ORDER._replace(num_records=1)
        recorded = await record(recording, order, during=lambda: inference.predict(PREDICT))
        assert recorded[1:] == (1, 1, 0, 1, str(tmp_path / "m"))
        (log,) = logs_of(recorded, directory=tmp_path)
        request = log.predict_log.request
        assert request.model_spec.name == "m"
        assert tf.make_ndarray(request.inputs["x"]).tolist() == [1, 2]
        assert inference.recorder is None

    play(scenario, base_path=tmp_path / "m")


def test_all_kinds_are_recorded(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        tasks = (InferenceTask(SPEC._replace(signature_name="regress"), REGRESS_METHOD),)

        async def ask() -> None:
            await classify(inference, request=ExamplesRequest(SPEC, EXAMPLES))
            spec = SPEC._replace(signature_name="regress")
            await regress(inference, request=ExamplesRequest(spec, EXAMPLES))
            await multi_inference(inference, request=MultiInferenceRequest(tasks, EXAMPLES))

        recorded = await record(recording, ORDER._replace(num_records=3), during=ask)
        classified, regressed, several = logs_of(recorded, directory=tmp_path)
        examples = classified.classify_log.request.input.example_list.examples
        assert [example.SerializeToString() for example in examples] == EXAMPLES.tolist()
        assert regressed.regress_log.request.model_spec.signature_name == "regress"
        (task,) = several.multi_inference_log.request.tasks
        assert (task.model_spec.name, task.method_name) == ("m", REGRESS_METHOD)
        assert len(several.multi_inference_log.request.input.example_list.examples) == 2

    play(scenario, base_path=tmp_path / "m", servable=FixedServable())


def test_what_failed_is_not_recorded(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        async def ask() -> None:
            with pytest.raises(ServingError):
                await inference.predict(PREDICT._replace(output_filter=("nothing",)))
            await inference.predict(PREDICT)

        recorded = await record(recording, ORDER._replace(num_records=1), during=ask)
        (log,) = logs_of(recorded, directory=tmp_path)
        assert not log.predict_log.request.output_filter

    play(scenario, base_path=tmp_path / "m")


def test_a_recording_of_nothing_is_an_error(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        with pytest.raises(NotFound, match="No request to record: m answered none in this time"):
            await recording.record(ORDER._replace(timeout_s=0.01))
        assert inference.recorder is None

    play(scenario, base_path=tmp_path / "m")


def test_the_end_of_the_time_ends_a_recording(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        order = ORDER._replace(timeout_s=0.2)
        recorded = await record(recording, order, during=lambda: inference.predict(PREDICT))
        assert recorded.num_records == 1

    play(scenario, base_path=tmp_path / "m")


def test_one_recording_at_a_time(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        async def ask() -> None:
            with pytest.raises(AlreadyExists):
                await recording.record(ORDER)
            await inference.predict(PREDICT)

        assert (await record(recording, ORDER._replace(num_records=1), during=ask)).num_records == 1

    play(scenario, base_path=tmp_path / "m")


def test_a_recording_whose_client_left_is_over(tmp_path: Path) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        task = asyncio.create_task(recording.record(ORDER))
        await asyncio.sleep(0)
        assert inference.recorder is not None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert inference.recorder is None

    play(scenario, base_path=tmp_path / "m")


def test_a_shutdown_ends_a_recording_with_what_it_has(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)

    async def run() -> None:
        server = Server(single_model(tmp_path / "m"), make_runtime_loader=make_toy_loader)
        await server.start()
        recording = server._recording
        task = asyncio.create_task(recording.record(ORDER))
        await asyncio.sleep(0)
        await recording._inference.predict(PREDICT)
        assert await server.drain(grace_s=30)
        assert (await task).num_records == 1

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (SPEC._replace(name=ModelName("n")), NotFound),
        (SPEC._replace(version=Version(9)), NotFound),
        (SPEC._replace(label="x"), InvalidArgument),
    ],
)
def test_only_what_is_there_is_recorded(
    tmp_path: Path, spec: ModelSpec, error: type[ServingError]
) -> None:
    async def scenario(inference: InferenceService, recording: RecordingService) -> None:
        with pytest.raises(error):
            await recording.record(ORDER._replace(spec=spec))
        assert inference.recorder is None

    play(scenario, base_path=tmp_path / "m")
