"""The weights of a Hugging Face directory: one safetensors file, or several and an index."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from aspira.contracts.errors import DataLoss, InvalidArgument
from aspira.llm.weights.bounded_files import digest_files, read_json
from aspira.llm.weights.hugging_face_config import CONFIG_FILE
from aspira.llm.weights.packed import PackedMatrix
from aspira.llm.weights.safetensors_file import SafetensorsFile
from aspira.llm.weights.source import Weight, name_in_file

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_NAMES = MappingProxyType(
    {
        "embedding": "model.embed_tokens",
        "final_norm": "model.norm",
        "head": "lm_head",
        "attention_norm": "input_layernorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "query_norm": "self_attn.q_norm",
        "key_norm": "self_attn.k_norm",
        "attention_output": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "rotary_factors": "rope_freqs",
    }
)


class HuggingFaceWeights:
    """See `Weights`. `files` are those that hold tensors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        paths = list_weight_files(directory)
        self._files: Mapping[str, SafetensorsFile] = MappingProxyType(
            {name: file for file in map(SafetensorsFile, paths) for name in file.names}
        )
        self.digest = digest_files([directory / CONFIG_FILE, *paths])

    def __contains__(self, name: str) -> bool:
        return _stored_name(name) in self._files

    def read(self, name: str) -> Weight:
        stored = _stored_name(name)
        if stored not in self._files:
            raise DataLoss(f"{self._directory} has no tensor {stored}; copy the model again")
        return self._files[stored].read(stored)

    def read_packed(self, name: str) -> PackedMatrix | None:  # noqa: ARG002
        return None


def _stored_name(name: str) -> str:
    return name_in_file(name, names=_NAMES, layer_prefix="model.layers.")


def list_weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory: those that an index names, or the one.

    Raises:
        ServingError: the index cannot be read, or names what is not beside it.
    """
    index = directory / INDEX_FILE
    if not index.is_file():
        return [directory / WEIGHTS_FILE]
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict):
        raise InvalidArgument(f"{index}: weight_map is missing")
    files = sorted({str(name) for name in names.values()})
    for name in files:
        if Path(name).name != name:
            raise InvalidArgument(f"{index}: {name!r} is not the name of a file beside it")
    return [directory / name for name in files]
