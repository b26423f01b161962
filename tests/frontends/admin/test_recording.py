import asyncio
import json
from pathlib import Path

import pytest
import tensorflow as tf

from asgi_exchange import exchange, post
from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelName, ModelSpec
from aspira.frontends.admin.recording import SUMMARY_HEADER, answer_recording
from aspira.frontends.rest.messages import HttpRequest
from serving_toys import running, single_model, write_version

SPEC = ModelSpec(ModelName("m"))


def asked(query: str) -> HttpRequest:
    return HttpRequest("POST", "/v1/models/m:record_warmup", query, (), b"", deadline=None)


def test_the_answer_is_a_warmup_file_and_a_summary(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=3)

    async def run() -> None:
        async with running(single_model(tmp_path / "m")) as server:
            recording = asyncio.create_task(
                answer_recording(
                    server.admin_services().recording, spec=SPEC, request=asked("num_records=2")
                )
            )
            await asyncio.sleep(0)
            for values in ([1.0], [2.0, 3.0]):
                body = {"instances": values}
                await exchange(server.application, request=post("/v1/models/m:predict", body=body))
            answer = await recording
        assert answer.status == 200
        assert answer.content_type == "application/octet-stream"
        assert json.loads(answer.headers[SUMMARY_HEADER]) == {
            "num_records": 2,
            "num_shapes": 2,
            "num_too_large": 0,
            "model_version": "3",
            "base_path": str(tmp_path / "m"),
        }
        file = tmp_path / "records"
        file.write_bytes(answer.body)
        assert len(list(tf.compat.v1.io.tf_record_iterator(str(file)))) == 2

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("num=1", "No parameter 'num'; there are num_records, "),
        ("num_records=many", "num_records is 'many', which is no number"),
        ("num_records=", "num_records is '', which is no number"),
        ("timeout_seconds=inf", "timeout_seconds is 'inf', which is no number"),
        ("num_records=1001", "num_records is 1001; a warm-up file holds 1 to 1000"),
        ("num_records=0", "num_records is 0; "),
        ("num_records_per_shape=0", "num_records_per_shape is 0; "),
        ("timeout_seconds=0", "timeout_seconds is 0; "),
        ("timeout_seconds=1e9", "timeout_seconds is 1e+09; "),
        ("sampling_rate=0", "sampling_rate is 0; "),
        ("sampling_rate=1.5", "sampling_rate is 1.5; "),
    ],
)
def test_parameters_that_make_no_sense_are_refused(tmp_path: Path, query: str, text: str) -> None:
    write_version(tmp_path / "m", version=3)

    async def run() -> None:
        async with running(single_model(tmp_path / "m")) as server:
            recording = server.admin_services().recording
            with pytest.raises(InvalidArgument) as caught:
                await answer_recording(recording, spec=SPEC, request=asked(query))
            assert caught.value.message.startswith(text)

    asyncio.run(run())
