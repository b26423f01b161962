"""The models to serve, as every peer gets them: numpy in, numpy out, through one TensorFlow.

The harness names the places in the environment, since some peers read the command line themselves.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bare_tensorflow import make_optimized_callable, open_model

Array = npt.NDArray[np.float32]
Call = Callable[[Array], Array]

GRPC_PORT = int(os.environ["BENCH_GRPC_PORT"])
REST_PORT = int(os.environ["BENCH_REST_PORT"])
NUM_CORES = len(os.sched_getaffinity(0))

_MODELS = Path(os.environ["BENCH_MODELS"])


@dataclass(frozen=True, slots=True)
class Served:
    """What a peer is told of a model. Shapes are those of one row; a request has several."""

    name: str
    input_name: str
    output_name: str
    input_row: tuple[int, ...]
    output_row: tuple[int, ...]

    @property
    def rest_path(self) -> str:
        return f"/v1/models/{self.name}:predict"


HALF_PLUS_TWO = Served("half_plus_two", "x", "y", input_row=(), output_row=())
MLP = Served("mlp", "x", "y", input_row=(128,), output_row=(1,))
MOBILENET = Served("mobilenet", "image", "scores", input_row=(224, 224, 3), output_row=(1000,))
"""Called with the floats as they lie in memory; the others in JSON."""

MODELS = (HALF_PLUS_TWO, MLP, MOBILENET)


def load(model: Served) -> Call:
    """The fastest way to call TensorFlow that we know: the one Aspira uses itself."""
    session, signature = open_model(str(_MODELS / model.name / "versions" / "1"))
    call: Call = make_optimized_callable(session, signature=signature)
    return lambda array: call(array)[0]


def run_together(call: Call, *, arrays: Sequence[Array]) -> list[Array]:
    """One run for several requests, each with rows of its own."""
    if len(arrays) == 1:
        return [call(arrays[0])]
    answer = call(np.concatenate(arrays))
    return np.split(answer, np.cumsum([len(array) for array in arrays[:-1]]))


def read_rows(body: bytes, *, model: Served) -> Array:
    """The rows that lie in a body without any framing."""
    return np.frombuffer(body, np.float32).reshape(-1, *model.input_row)
