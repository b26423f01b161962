import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from aspira.contracts.examples import ExamplesRequest, InferenceTask, MultiInferenceRequest
from aspira.contracts.identity import ModelName, ModelSpec, ServableId, Version
from aspira.contracts.inference import PredictRequest
from aspira.contracts.signatures import CLASSIFY_METHOD, REGRESS_METHOD
from aspira.contracts.tensors import Tensor
from aspira.service import recorder as recorder_module
from aspira.service.recorder import Recorder, RecordingOrder
from aspira.wire.prediction_log import LoggedRequest, LogKind
from example_toys import strings

M = ModelName("m")
SPEC = ModelSpec(M)
ID = ServableId(M, Version(1))


def floats(*shape: int) -> Tensor:
    return np.zeros(shape, np.float32)


def predict(
    tensor: Tensor, *, signature_name: str = "", outputs: tuple[str, ...] = ()
) -> PredictRequest:
    return PredictRequest(SPEC._replace(signature_name=signature_name), {"x": tensor}, outputs)


def multi(*method_names: str) -> MultiInferenceRequest:
    tasks = tuple(InferenceTask(SPEC, name) for name in method_names)
    return MultiInferenceRequest(tasks, strings(b"a"))


def make_recorder(
    *, version: Version | None = None, draw: Callable[[], float] = lambda: 0.0, **limits: float
) -> Recorder:
    return Recorder(RecordingOrder(SPEC)._replace(**limits), version=version, draw=draw)


def offer(recorder: Recorder, *requests: LoggedRequest, kind: LogKind = LogKind.PREDICT) -> None:
    for request in requests:
        recorder.offer(kind, request=request, servable_id=ID)


def taken(recorder: Recorder) -> list[LoggedRequest]:
    return [taken.request for taken in recorder.taken]


def test_a_few_of_each_shape_are_taken() -> None:
    recorder = make_recorder(num_records_per_shape=2)
    one, two = predict(floats(1, 3)), predict(floats(2, 3))
    offer(recorder, one, one, one, two, one)
    assert [len(request.inputs["x"]) for request in taken(recorder)] == [1, 1, 2]  # type: ignore[union-attr]
    assert recorder.num_shapes == 2


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (predict(floats(1)), LogKind.PREDICT),
        (predict(floats(1), signature_name="other"), LogKind.PREDICT),
        (predict(floats(1), outputs=("y",)), LogKind.PREDICT),
        (predict(floats(1).astype(np.float64)), LogKind.PREDICT),
        (ExamplesRequest(SPEC, strings(b"a")), LogKind.CLASSIFY),
        (ExamplesRequest(SPEC, strings(b"a")), LogKind.REGRESS),
        (ExamplesRequest(SPEC, strings(b"a", b"b")), LogKind.REGRESS),
        (multi(CLASSIFY_METHOD), LogKind.MULTI_INFERENCE),
        (multi(CLASSIFY_METHOD, REGRESS_METHOD), LogKind.MULTI_INFERENCE),
    ],
)
def test_kinds_signatures_types_and_shapes_make_a_difference(
    request_: LoggedRequest, kind: LogKind
) -> None:
    recorder = make_recorder(num_records_per_shape=1)
    offer(recorder, predict(floats(9)), ExamplesRequest(SPEC, strings()))
    offer(recorder, request_, request_, kind=kind)
    assert len(taken(recorder)) == 3
    assert recorder.taken[-1] == (kind, request_, ID.version)


def test_an_empty_signature_name_is_the_default_one() -> None:
    recorder = make_recorder(num_records_per_shape=1)
    offer(recorder, predict(floats(1)), predict(floats(1), signature_name="serving_default"))
    assert len(taken(recorder)) == 1


def test_requests_of_other_models_and_versions_are_left_alone() -> None:
    recorder = make_recorder(version=Version(2))
    request = predict(floats(1))
    for servable_id in (ID, ServableId(ModelName("n"), Version(2)), ServableId(M, Version(2))):
        recorder.offer(LogKind.PREDICT, request=request, servable_id=servable_id)
    assert [taken.version for taken in recorder.taken] == [2]


def test_requests_are_sampled() -> None:
    draws = iter([0.1, 0.5, 0.9, 0.2])
    recorder = make_recorder(draw=lambda: next(draws), sampling_rate=0.5)
    offer(recorder, *(predict(floats(n)) for n in range(1, 5)))
    assert [len(request.inputs["x"]) for request in taken(recorder)] == [1, 4]  # type: ignore[union-attr]


def test_it_is_finished_once_it_has_enough() -> None:
    async def run() -> None:
        recorder = make_recorder(num_records=2)
        offer(recorder, *(predict(floats(n)) for n in range(1, 5)))
        await recorder.wait_finished()
        assert len(taken(recorder)) == 2

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    "tensor", [np.zeros(101, np.uint8), strings(b"x" * 60, b"y" * 41)], ids=["numbers", "strings"]
)
def test_what_is_too_large_is_counted_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tensor: Tensor
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_RECORD_BYTES", 100)
    recorder = make_recorder()
    offer(recorder, predict(tensor), predict(floats(1)))
    assert len(taken(recorder)) == 1
    assert recorder.num_too_large == 1
    assert recorder.num_shapes == 1


def test_all_together_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_TOTAL_BYTES", 100)
    recorder = make_recorder()
    offer(recorder, *(predict(np.zeros(n, np.uint8)) for n in (60, 41, 40)))
    assert [len(request.inputs["x"]) for request in taken(recorder)] == [60, 40]  # type: ignore[union-attr]
    assert recorder.num_too_large == 1
