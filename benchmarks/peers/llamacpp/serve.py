"""llama.cpp's own HTTP server, which this package starts in its process: 32 slots on 2 threads."""

import os
import signal
import sys

import xllamacpp

_NUM_SLOTS = 32
_CONTEXT_TOKENS = 512


def main() -> None:
    params = xllamacpp.CommonParams()
    params.model.path = sys.argv[1]
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = int(sys.argv[2])
    params.n_parallel = _NUM_SLOTS
    params.n_ctx = _NUM_SLOTS * _CONTEXT_TOKENS
    params.cont_batching = True
    params.n_gpu_layers = 0
    threads = len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(f"serving at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
