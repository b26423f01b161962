"""PyTriton: Triton's C++ frontends and dynamic batcher, inference in this Python process."""

import os
import signal
import sys
import sysconfig
from collections.abc import Callable

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from served_models import (
    GRPC_PORT,
    HALF_PLUS_TWO,
    MLP,
    MOBILENET,
    NUM_CORES,
    REST_PORT,
    Array,
    Served,
    load,
)

_MAX_BATCH_SIZE = 32
_MAX_QUEUE_DELAY_US = 1000


def make_function(model: Served) -> Callable[..., dict[str, Array]]:
    call = load(model)

    @batch
    def infer(**inputs: Array) -> dict[str, Array]:
        return {model.output_name: call(inputs[model.input_name])}

    return infer


def bind(triton: Triton, *, model: Served, delay_us: int) -> None:
    row = model.input_row or (-1,)
    triton.bind(
        model_name=model.name,
        # An instance for each core.
        infer_func=[make_function(model) for _ in range(NUM_CORES)],
        inputs=[Tensor(name=model.input_name, dtype=np.float32, shape=row)],
        outputs=[Tensor(name=model.output_name, dtype=np.float32, shape=model.output_row or (-1,))],
        config=ModelConfig(
            max_batch_size=_MAX_BATCH_SIZE,
            batcher=DynamicBatcher(max_queue_delay_microseconds=delay_us),
        ),
    )


def main() -> None:
    # Unwind, so that its shared memory goes too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    # Triton's Python stub loads a libpython: it has to be this interpreter's.
    os.environ["LD_LIBRARY_PATH"] = sysconfig.get_config_var("LIBDIR")
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=REST_PORT,
        grpc_address="127.0.0.1",
        grpc_port=GRPC_PORT,
        allow_metrics=False,
    )
    with Triton(config=config) as triton:
        bind(triton, model=HALF_PLUS_TWO, delay_us=_MAX_QUEUE_DELAY_US)
        bind(triton, model=MLP, delay_us=_MAX_QUEUE_DELAY_US)
        bind(triton, model=MOBILENET, delay_us=0)
        triton.serve()


if __name__ == "__main__":
    main()
