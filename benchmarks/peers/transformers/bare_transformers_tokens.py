"""transformers' `generate` over one batch, with nothing around it: fast where lengths are equal.

    python bare_transformers_tokens.py MODEL < waves.json

A wave is requests that come at once; each gives a line of JSON when its last one has ended.
"""

import json
import os
import sys
import time

import torch
from transformers import AutoModelForCausalLM

_PAD_ID = 0


def main() -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
    for wave in json.loads(sys.stdin.readline()):
        print(json.dumps(_run(model, wave=wave)), flush=True)


def _run(model: torch.nn.Module, *, wave: dict) -> dict:
    # Shorter prompts are padded at their left, as generation wants it.
    longest = max(map(len, wave["prompts"]))
    padded = [[_PAD_ID] * (longest - len(prompt)) + prompt for prompt in wave["prompts"]]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in wave["prompts"]]
    began, began_cpu = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        found = model.generate(
            torch.tensor(padded),
            attention_mask=torch.tensor(mask),
            max_new_tokens=wave["num_output_tokens"],
            eos_token_id=-1,
            pad_token_id=_PAD_ID,
            do_sample=False,
        )
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    answers = found[:, longest:].tolist()
    return {
        "num_tokens": sum(map(len, answers)),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "steps_ms": [seconds * 1e3 / wave["num_output_tokens"]],
        "answers": answers if wave["is_kept"] else [],
    }


if __name__ == "__main__":
    main()
