"""openvino-genai's continuous batching with nothing around it.

    python bare_genai_tokens.py MODEL < waves.json

A wave is requests that come at once; each gives a line of JSON when its last one has ended.
"""

import json
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

_STEP_TOKENS = 256
_CACHE_GB = 1


def main() -> None:
    config = genai.SchedulerConfig()
    config.cache_size = _CACHE_GB
    config.max_num_batched_tokens = _STEP_TOKENS
    config.max_num_seqs = 64
    config.dynamic_split_fuse = True
    config.enable_prefix_caching = False
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16",
        "KV_CACHE_PRECISION": "bf16",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    pipeline = genai.ContinuousBatchingPipeline(sys.argv[1], config, "CPU", settings)
    for wave in json.loads(sys.stdin.readline()):
        print(json.dumps(_run(pipeline, wave=wave)), flush=True)


def _run(pipeline: genai.ContinuousBatchingPipeline, *, wave: dict) -> dict:
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = wave["num_output_tokens"]
    config.ignore_eos = True
    config.do_sample = False
    began, began_cpu = time.perf_counter(), time.process_time()
    handles = [
        pipeline.add_request(number, ov.Tensor(np.array([prompt], np.int64)), config)
        for number, prompt in enumerate(wave["prompts"])
    ]
    steps_ms = []
    while pipeline.has_non_finished_requests():
        step_began = time.perf_counter()
        pipeline.step()
        steps_ms.append((time.perf_counter() - step_began) * 1e3)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    answers = [handle.read_all()[0].generated_ids for handle in handles]
    return {
        "num_tokens": sum(map(len, answers)),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "steps_ms": steps_ms,
        "answers": answers if wave["is_kept"] else [],
    }


if __name__ == "__main__":
    main()
