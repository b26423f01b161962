"""BentoML: adaptive batching, a worker process for each core."""

from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import DType, Shape

from served_models import HALF_PLUS_TWO, MLP, MOBILENET, NUM_CORES, load, read_rows

_BATCHES = {"batchable": True, "max_batch_size": 32}


@bentoml.service(workers=NUM_CORES, logging={"access": {"enabled": False}})
class Inference:
    """One endpoint for each model. BentoML puts requests together along the first axis."""

    def __init__(self) -> None:
        self._half_plus_two = load(HALF_PLUS_TWO)
        self._mlp = load(MLP)
        self._mobilenet = load(MOBILENET)

    @bentoml.api(route="/half_plus_two", **_BATCHES)
    def half_plus_two(
        self, instances: Annotated[np.ndarray, DType("float32"), Shape((-1,))]
    ) -> Annotated[np.ndarray, DType("float32")]:
        return self._half_plus_two(instances)

    @bentoml.api(route="/mlp", **_BATCHES)
    def mlp(
        self, instances: Annotated[np.ndarray, DType("float32"), Shape((-1, 128))]
    ) -> Annotated[np.ndarray, DType("float32")]:
        return self._mlp(instances)

    @bentoml.api(route="/mobilenet")
    def mobilenet(self, image: bytes, /) -> bytes:
        return self._mobilenet(read_rows(image, model=MOBILENET)).tobytes()
