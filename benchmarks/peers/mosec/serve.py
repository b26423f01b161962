"""Mosec: its Rust frontend makes the batches, one Python process a core and model runs them."""

import sys

import msgspec
import numpy as np
from mosec import Runtime, Server, Worker

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
_MAX_WAIT_MS = 1


class Inference(Worker):
    """A model that is called in JSON. Mosec pickles the class, so each model has its own."""

    model: Served

    def __init__(self) -> None:
        super().__init__()
        self._call = load(self.model)

    def deserialize(self, data: bytes) -> Array:
        return np.array(msgspec.json.decode(data)["instances"], np.float32)

    def forward(self, data: list[Array]) -> list[Array]:
        return run_together(self._call, arrays=data)

    def serialize(self, data: Array) -> bytes:
        return msgspec.json.encode({"predictions": data.tolist()})


class HalfPlusTwo(Inference):  # noqa: D101
    model = HALF_PLUS_TWO


class Mlp(Inference):  # noqa: D101
    model = MLP


class MobileNet(Inference):
    """Raw floats, one request a run."""

    model = MOBILENET

    def deserialize(self, data: bytes) -> Array:
        return read_rows(data, model=self.model)

    def forward(self, data: Array) -> Array:
        return self._call(data)

    def serialize(self, data: Array) -> bytes:
        return data.tobytes()


def main() -> None:
    # Mosec reads its options from the command line.
    sys.argv += ["--address=127.0.0.1", f"--port={REST_PORT}", "--log-level=warning"]
    server = Server()
    batches = {"max_batch_size": _MAX_BATCH_SIZE, "max_wait_time": _MAX_WAIT_MS}
    server.register_runtime(
        {
            HALF_PLUS_TWO.rest_path: [Runtime(HalfPlusTwo, num=NUM_CORES, **batches)],
            MLP.rest_path: [Runtime(Mlp, num=NUM_CORES, **batches)],
            MOBILENET.rest_path: [Runtime(MobileNet, num=NUM_CORES)],
        }
    )
    server.run()


if __name__ == "__main__":
    main()
