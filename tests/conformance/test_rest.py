"""REST as a TensorFlow Serving client sees it: exact bytes, codes and texts, over each listener."""

import gzip
import json
import re
import socket

import pytest
import requests

from system.server_process import ServerProcess

HALF_PLUS_TWO = "/v1/models/half_plus_two"

GOOD = [
    (f"{HALF_PLUS_TWO}/versions/1", b'{"instances": [1.0, 2.0, 5.0]}', b"[2.5, 3.0, 4.5\n    ]"),
    (HALF_PLUS_TWO, b'{"instances": [1.0]}', b"[3.5\n    ]"),
    (f"{HALF_PLUS_TWO}/labels/stable", b'{"instances": [1.0]}', b"[2.5\n    ]"),
    (f"{HALF_PLUS_TWO}/labels/canary", b'{"instances": [1]}', b"[3.5\n    ]"),
    (f"{HALF_PLUS_TWO}/versions/1", b'{"instances": [[1.0], [3e0]]}', b"[[2.5], [3.5]\n    ]"),
    (f"{HALF_PLUS_TWO}/versions/1", b'{"instances": [{"x": 1}, {"x": 3}]}', b"[2.5, 3.5\n    ]"),
    (
        f"{HALF_PLUS_TWO}/versions/1",
        b'{"signature_name": "serving_default", "instances": [NaN, Infinity]} trailing',
        b"[NaN, Infinity\n    ]",
    ),
]


@pytest.mark.parametrize(("path", "body", "predictions"), GOOD)
def test_row_format_answers_byte_for_byte(
    server: ServerProcess, path: str, body: bytes, predictions: bytes
) -> None:
    answer = requests.post(f"{server.rest_url}{path}:predict", data=body, timeout=30)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.content == b'{\n    "predictions": ' + predictions + b"\n}"


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (b"[1.0, 2.0]", b"[\n        2.5,\n        3.0\n    ]"),
        (b'{"x": [1.0]}', b"[\n        2.5\n    ]"),
        (b"5.0", b"4.5"),
    ],
)
def test_columnar_format_answers_byte_for_byte(
    server: ServerProcess, inputs: bytes, outputs: bytes
) -> None:
    body = b'{"inputs": ' + inputs + b"}"
    url = f"{server.rest_url}{HALF_PLUS_TWO}/versions/1:predict"
    answer = requests.post(url, data=body, timeout=30)
    assert answer.content == b'{\n    "outputs": ' + outputs + b"\n}"


def test_several_inputs_and_outputs(server: ServerProcess) -> None:
    body = {"instances": [{"a": [1.0, 2.0], "b": 3}, {"a": [0.5, 0.5], "b": 2**53 + 1}]}
    answer = requests.post(f"{server.rest_url}/v1/models/sums:predict", json=body, timeout=30)
    rows = answer.json()["predictions"]
    assert rows[0] == {"b_plus_one": 4, "sum": 6.0}
    assert rows[1]["b_plus_one"] == 2**53 + 2


def test_strings_and_base64(server: ServerProcess) -> None:
    body = {"instances": ["grün", {"b64": "/v8="}]}
    answer = requests.post(f"{server.rest_url}/v1/models/texts:predict", json=body, timeout=30)
    assert answer.content == (
        b'{\n    "predictions": [\n        {\n            "length": 5,\n'
        b'            "upper": "GR\xc3\xbcN",\n            "upper_bytes": {\n'
        b'                "b64": "R1LDvE4="\n            }\n        },\n        {\n'
        b'            "length": 2,\n            "upper": "\xfe\xff",\n'
        b'            "upper_bytes": {\n                "b64": "/v8="\n            }\n        }\n'
        b"    ]\n}"
    )


def test_gzip_body(server: ServerProcess) -> None:
    body = gzip.compress(b'{"instances": [1.0]}')
    answer = requests.post(
        f"{server.rest_url}{HALF_PLUS_TWO}/versions/1:predict",
        data=body,
        headers={"content-encoding": "gzip"},
        timeout=30,
    )
    assert answer.json() == {"predictions": [2.5]}


BAD = [
    ("half_plus_two", b"", 400, "JSON Parse error: The document is empty"),
    ("half_plus_two", b"[]", 400, "JSON Value: [] Is not object"),
    ("half_plus_two", b"{}", 400, "Missing 'inputs' or 'instances' key"),
    ("half_plus_two", b'{"instances": [}', 400, "JSON Parse error: Invalid value. at offset: 15"),
    ("nope", b'{"instances": [1.0]}', 404, "Servable not found for request: Latest(nope)"),
    (
        "half_plus_two/versions/9",
        b'{"instances": [1.0]}',
        404,
        "Servable not found for request: Specific(half_plus_two, 9)",
    ),
    (
        "half_plus_two/labels/nope",
        b'{"instances": [1.0]}',
        400,
        "Unrecognized servable version label: nope",
    ),
    (
        "half_plus_two",
        b'{"signature_name": "nope", "instances": [1.0]}',
        400,
        'Serving signature name: "nope" not found in signature def',
    ),
    (
        "half_plus_two",
        b'{"instances": [[1.0, 2.0], [3.0]]}',
        400,
        (
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting tensor size: 2 but got: 1"
        ),
    ),
    (
        "half_plus_two",
        b'{"instances": ["1.0"]}',
        400,
        (
            "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
            'JSON Value: "1.0" Type: String is not of expected type: float'
        ),
    ),
    (
        "half_plus_two",
        b'{"instances": [{"y": 1.0}]}',
        400,
        (
            "Failed to process element: 0 key: y of 'instances' list. Error: INVALID_ARGUMENT: "
            "JSON object: does not have named input: y"
        ),
    ),
    ("broken", b'{"instances": [1.0]}', 503, "Servable not found for request: Latest(broken)"),
    ("missing", b'{"instances": [1.0]}', 503, "Servable not found for request: Latest(missing)"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), BAD)
def test_bad_requests_are_told_what_is_wrong_and_hurt_nobody(
    server: ServerProcess, path: str, body: bytes, status: int, message: str
) -> None:
    answer = requests.post(f"{server.rest_url}/v1/models/{path}:predict", data=body, timeout=30)
    assert (answer.status_code, answer.json()) == (status, {"error": message})
    assert answer.text.startswith('{\n    "error": "')
    assert answer.text.endswith('"\n}')
    _assert_serving(server)


def test_a_truncated_gzip_body(server: ServerProcess) -> None:
    body = gzip.compress(b'{"instances": [1.0]}')[:-6]
    answer = requests.post(
        f"{server.rest_url}{HALF_PLUS_TWO}:predict",
        data=body,
        headers={"content-encoding": "gzip"},
        timeout=30,
    )
    assert answer.status_code == 400
    assert answer.json() == {"error": "JSON Parse error: The document is empty"}
    _assert_serving(server)


def test_a_shape_that_the_model_refuses(server: ServerProcess) -> None:
    body = {"instances": [{"a": [1.0, 2.0, 3.0], "b": 1}, {"a": [1.0, 2.0, 3.0], "b": 1}]}
    answer = requests.post(f"{server.rest_url}/v1/models/sums:predict", json=body, timeout=30)
    # The model sums over whatever it gets, as it would in TensorFlow Serving.
    assert answer.json()["predictions"][0]["sum"] == 7.0


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v1/nope", "Malformed request: GET /v1/nope"),
        ("POST", "/v1/models/m", "Malformed request: POST /v1/models/m"),
        ("DELETE", "/v1/models/m", "Malformed request: DELETE /v1/models/m"),
        ("PUT", "/v1/models/m:predict?a=b", "Malformed request: PUT /v1/models/m:predict?a=b"),
    ],
)
def test_malformed_requests(server: ServerProcess, method: str, path: str, message: str) -> None:
    answer = requests.request(method, f"{server.rest_url}{path}", timeout=30)
    assert (answer.status_code, answer.json()) == (400, {"error": message})


def test_a_path_that_is_no_utf_8_is_answered(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/v1/models/%ff", timeout=30)
    assert answer.status_code in {400, 404}
    assert list(answer.json()) == ["error"]
    assert answer.headers["content-type"] == "application/json"


def test_the_models_are_listed(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/v1/models", timeout=30)
    assert answer.status_code == 200
    listed = {model["name"]: model for model in answer.json()["models"]}
    assert next(iter(listed)) == "half_plus_two"
    assert {"texts", "sums", "counter", "broken", "missing"} < listed.keys()
    assert [
        (v["version"], v["state"], v["version_labels"], v["signature_names"])
        for v in listed["half_plus_two"]["model_version_status"]
    ] == [
        ("2", "AVAILABLE", ["canary"], ["serving_default"]),
        ("1", "AVAILABLE", ["stable"], ["serving_default"]),
    ]
    assert "unavailable" in listed["broken"]


def test_paths_outside_the_api_are_html_404s(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/nope", timeout=30)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html"
    assert answer.text.startswith("<HTML><HEAD>\n<TITLE>404 Not Found</TITLE>")


def test_status_bytes(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}{HALF_PLUS_TWO}/versions/1", timeout=30)
    assert answer.content == (
        b'{\n "model_version_status": [\n  {\n   "version": "1",\n   "state": "AVAILABLE",\n'
        b'   "status": {\n    "error_code": "OK",\n    "error_message": ""\n   }\n  }\n ]\n}\n'
    )


def test_status_lists_the_newest_version_first(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}{HALF_PLUS_TWO}", timeout=30)
    assert [entry["version"] for entry in answer.json()["model_version_status"]] == ["2", "1"]


def test_status_of_a_broken_model_tells_its_error(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/v1/models/broken", timeout=30)
    (entry,) = answer.json()["model_version_status"]
    assert entry["state"] == "END"
    assert entry["status"]["error_code"] == "DATA_LOSS"
    assert "as binary proto" in entry["status"]["error_message"]


def test_status_of_nobody(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/v1/models/nope", timeout=30)
    assert answer.status_code == 404
    assert answer.json() == {"error": "Could not find any versions of model nope"}


def test_metadata(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/v1/models/sums/metadata", timeout=30)
    metadata = answer.json()
    assert metadata["model_spec"] == {"name": "sums", "signature_name": "", "version": "1"}
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["a"]["dtype"] == "DT_FLOAT"
    assert [dim["size"] for dim in signature["inputs"]["a"]["tensor_shape"]["dim"]] == ["-1", "2"]


def test_readiness_names_the_models_that_cannot_answer(server: ServerProcess) -> None:
    answer = requests.get(f"{server.rest_url}/readyz", timeout=30)
    # The others can answer, so the server stays in rotation.
    assert answer.status_code == 200
    assert set(answer.json()["unavailable"]) == {"broken", "missing"}
    assert "DATA_LOSS" in answer.json()["unavailable"]["broken"]
    assert requests.get(f"{server.rest_url}/healthz", timeout=30).status_code == 200


def test_metrics_count_requests_by_model_and_version(server: ServerProcess) -> None:
    url = f"{server.rest_url}{HALF_PLUS_TWO}/versions/1:predict"
    requests.post(url, data=b'{"instances": [1.0]}', timeout=30)
    page = requests.get(f"{server.rest_url}/monitoring/prometheus/metrics", timeout=30).text
    labels = 'model_name="half_plus_two",version="1",api="predict",entrypoint="rest"'
    assert f':aspira:request_count{{{labels},status="OK"}}' in page
    assert ':tensorflow:serving:request_count{model_name="half_plus_two",status="OK"}' in page
    runtime = 'model_name="half_plus_two",API="Predict",runtime="TF1"'
    assert f":tensorflow:serving:runtime_latency_count{{{runtime}}}" in page


def test_a_64_mib_tensor_each_way(server: ServerProcess) -> None:
    # 16 Mi float32 values; as JSON about as many characters as bytes of the tensor.
    num_values = 2**24
    body = b'{"inputs": [' + b",".join([b"1.5"] * num_values) + b"]}"
    assert len(body) > 2**26 - 16
    answer = requests.post(
        f"{server.rest_url}{HALF_PLUS_TWO}/versions/1:predict", data=body, timeout=110
    )
    assert answer.status_code == 200
    assert answer.content.count(b"2.75") == num_values
    _assert_serving(server)


def test_rubbish_on_the_wire_hurts_nobody(server: ServerProcess) -> None:
    rubbish = (
        b"\0" * 64,
        b"GET\r\n\r\n",
        b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 64,
    )
    for data in rubbish:
        with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(30)
            _read_until_closed(connection)
        _assert_serving(server)


BODY = b'{"instances": [1.0]}'
PREDICT = b"POST /v1/models/half_plus_two/versions/1:predict HTTP/1.1\r\nHost: x\r\n"
STATUS = b"GET /v1/models/nobody HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
PREDICTED = b'{\n    "predictions": [2.5\n    ]\n}'
NOBODY = b'{\n    "error": "Could not find any versions of model nobody"\n}'


@pytest.mark.parametrize(
    ("sent", "statuses", "body"),
    [
        (
            PREDICT + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\n" + BODY[:5] + b"\r\nf\r\n" + BODY[5:] + b"\r\n0\r\n\r\n",
            [200],
            PREDICTED,
        ),
        (
            PREDICT
            + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n"
            + BODY,
            [100, 200],
            PREDICTED,
        ),
        (
            PREDICT.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Content-Length: 20\r\n\r\n" + BODY,
            [200],
            PREDICTED,
        ),
        (PREDICT + b"Content-Length: 20\r\n\r\n" + BODY + STATUS + b"\r\n", [200, 404], NOBODY),
        (STATUS + b"Content-Length: 20\r\n\r\n" + BODY, [404], NOBODY),
        (b"HEAD /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n" + STATUS + b"\r\n", [404, 404], NOBODY),
        (b"HEAD /nope HTTP/1.1\r\nHost: x\r\n\r\n" + STATUS + b"\r\n", [404, 404], NOBODY),
        (b"FOO /v1/models/m HTTP/1.1\r\nHost: x\r\n\r\n", [400], None),
    ],
    ids=["chunked", "continue", "1.0", "keep-alive", "GET body", "HEAD", "HEAD page", "method"],
)
def test_what_http_allows(
    server: ServerProcess, sent: bytes, statuses: list[int], body: bytes | None
) -> None:
    """On one connection, which the server closes after the last answer."""
    with socket.create_connection(("127.0.0.1", server.rest_port)) as connection:
        connection.settimeout(30)
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d+) ", answer)] == statuses
    if body is not None:
        head, _, last = answer.rpartition(b"\r\n\r\n")
        assert last == body
        # Between the heads there is nothing but the bodies of answers that have one.
        assert b"Malformed request: HEAD" not in head
        assert b"<HTML>" not in head


def _read_until_closed(connection: socket.socket) -> None:
    try:
        while connection.recv(65536):
            continue
    except ConnectionResetError:
        return


def _assert_serving(server: ServerProcess) -> None:
    url = f"{server.rest_url}{HALF_PLUS_TWO}/versions/1:predict"
    answer = requests.post(url, data=json.dumps({"instances": [1.0]}), timeout=30)
    assert answer.json() == {"predictions": [2.5]}
