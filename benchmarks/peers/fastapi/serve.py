"""FastAPI under uvicorn: a process for each core, uvloop and httptools, no batching."""

import numpy as np
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

from served_models import (
    HALF_PLUS_TWO,
    MLP,
    MOBILENET,
    NUM_CORES,
    REST_PORT,
    Served,
    load,
    read_rows,
)


def create_app() -> FastAPI:
    """Called by each worker process."""
    app = FastAPI()
    for model in (HALF_PLUS_TWO, MLP):
        _add_json_route(app, model=model)
    _add_raw_route(app, model=MOBILENET)
    return app


def _add_json_route(app: FastAPI, *, model: Served) -> None:
    call = load(model)

    # It runs on the event loop: a thread would cost more than the model does.
    @app.post(model.rest_path)
    async def predict(request: Request) -> Response:
        instances = orjson.loads(await request.body())["instances"]
        answer = {"predictions": call(np.array(instances, np.float32))}
        content = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, media_type="application/json")


def _add_raw_route(app: FastAPI, *, model: Served) -> None:
    call = load(model)

    @app.post(model.rest_path)
    async def predict(request: Request) -> Response:
        rows = read_rows(await request.body(), model=model)
        answer = await run_in_threadpool(call, rows)
        return Response(answer.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    uvicorn.run(
        "serve:create_app",
        factory=True,
        host="127.0.0.1",
        port=REST_PORT,
        workers=NUM_CORES,
        loop="uvloop",
        http="httptools",
        access_log=False,
        # TensorFlow's import keeps a worker from answering longer than the usual 5 s.
        timeout_worker_healthcheck=60,
    )
