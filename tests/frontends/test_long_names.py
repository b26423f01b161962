"""No answer grows with the names that a client sends, whatever they name."""

from pathlib import Path
from typing import Any

from asgi_exchange import get, post
from serving_toys import ask, single_model, write_version

LONG = "n" * 30_000
ROW: dict[str, Any] = {"instances": [1.0]}
INFER = "/v2/models/m/infer"


def tensor(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "shape": [1], "datatype": "FP32", "data": [1.0], **fields}


def test_no_answer_grows_with_what_it_quotes(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)
    x = [tensor("x")]
    requests = {
        "model": post(f"/v1/models/{LONG}:predict", body=ROW),
        "version of a model": get(f"/v1/models/{LONG}/versions/1"),
        "status": get(f"/v1/models/{LONG}"),
        "label": post(f"/v1/models/m/labels/{LONG}:predict", body=ROW),
        "signature": post("/v1/models/m:predict", body={"signature_name": LONG, **ROW}),
        "signature to classify": post(
            "/v1/models/m:classify", body={"signature_name": LONG, "examples": [{"x": 1.0}]}
        ),
        "verb": post(f"/v1/models/m:{LONG}", body=ROW),
        "openai": post("/v1/completions", body={"model": LONG, "prompt": "p"}),
        "v2 model": post(f"/v2/models/{LONG}/infer", body={"inputs": []}),
        "v2 path": get(f"/v2/{LONG}"),
        "v2 input": post(INFER, body={"inputs": [*x, tensor(LONG)]}),
        "v2 shape": post(INFER, body={"inputs": [tensor(LONG, shape=[2])]}),
        "v2 datatype": post(INFER, body={"inputs": [tensor("x", datatype=LONG)]}),
        "v2 output": post(INFER, body={"inputs": x, "outputs": [{"name": LONG}]}),
        "v2 signature": post(INFER, body={"inputs": x, "parameters": {"signature_name": LONG}}),
    }
    answers = ask(single_model(tmp_path / "m"), *requests.values())
    told = dict(zip(requests, answers, strict=True))
    assert {name: answer.status for name, answer in told.items() if answer.status < 400} == {}
    assert {name: len(one.body) for name, one in told.items() if len(one.body) > 999} == {}
    assert [name for name, answer in told.items() if b"nnn..." not in answer.body] == []


def test_nor_with_their_number(tmp_path: Path) -> None:
    write_version(tmp_path / "m", version=1)
    inputs = [tensor(f"name{index:04}") for index in range(1000)]
    request = post(INFER, body={"inputs": inputs})
    (answer,) = ask(single_model(tmp_path / "m"), request)
    assert answer.status == 400
    assert "name0063,...}" in answer.error
    assert "name0064" not in answer.error
