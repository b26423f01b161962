"""LitServe: batches, a worker for each core and model, an HTTP process for each core, ZeroMQ."""

import base64
from typing import Any

import litserve
import numpy as np

from served_models import (
    HALF_PLUS_TWO,
    MLP,
    MOBILENET,
    NUM_CORES,
    REST_PORT,
    Array,
    Served,
    load,
    read_rows,
    run_together,
)

_MAX_BATCH_SIZE = 32
_BATCH_TIMEOUT_S = 0.001


class Rows(litserve.LitAPI):
    """A model called with rows of numbers."""

    def __init__(self, model: Served, **options: Any) -> None:
        super().__init__(api_path=model.rest_path, **options)
        self._model = model

    def setup(self, device: str) -> None:  # noqa: ARG002
        self._call = load(self._model)

    def decode_request(self, request: dict[str, Any]) -> Array:
        return np.array(request["instances"], np.float32)

    def batch(self, inputs: list[Array]) -> list[Array]:
        return inputs

    def predict(self, x: list[Array]) -> list[Array]:
        return run_together(self._call, arrays=x)

    def unbatch(self, output: list[Array]) -> list[Array]:
        return output

    def encode_response(self, output: Array) -> dict[str, Any]:
        return {"predictions": output.tolist()}


class Base64(litserve.LitAPI):
    """A model called with its floats in base64, as LitServe's manual sends images. No batches."""

    def __init__(self, model: Served) -> None:
        super().__init__(api_path=model.rest_path)
        self._model = model

    def setup(self, device: str) -> None:  # noqa: ARG002
        self._call = load(self._model)

    def decode_request(self, request: dict[str, str]) -> Array:
        return read_rows(base64.b64decode(request["base64"]), model=self._model)

    def predict(self, x: Array) -> Array:
        return self._call(x)

    def encode_response(self, output: Array) -> dict[str, str]:
        return {"base64": base64.b64encode(output.tobytes()).decode()}


def main() -> None:
    batches = {"max_batch_size": _MAX_BATCH_SIZE, "batch_timeout": _BATCH_TIMEOUT_S}
    apis = [Rows(HALF_PLUS_TWO, **batches), Rows(MLP, **batches), Base64(MOBILENET)]
    server = litserve.LitServer(
        apis, accelerator="cpu", devices=1, workers_per_device=NUM_CORES, fast_queue=True
    )
    server.run(
        host="127.0.0.1",
        port=REST_PORT,
        num_api_servers=NUM_CORES,
        generate_client_file=False,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
