import json
from pathlib import Path
from typing import Any

import pytest

from aspira.contracts.errors import DataLoss, InvalidArgument, NotFound, ServingError, Unimplemented
from aspira.llm.weights.hugging_face import HuggingFaceWeights
from aspira.llm.weights.hugging_face_config import read_config
from language_models import TINY, tiny_weights, write_hugging_face

LLAMA = {**TINY, "architectures": ["LlamaForCausalLM"]}


def write_config(directory: Path, **fields: Any) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps({**LLAMA, **fields}))
    return path


def test_the_numbers_of_a_config(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, rope_theta=5.0, tie_word_embeddings=True))
    assert (config.family, config.num_layers, config.head_size) == ("llama", 2, 16)
    assert (config.rotary.theta, config.rotary.kind, config.has_tied_head) == (5.0, "default", True)


def test_what_a_config_may_leave_out(tmp_path: Path) -> None:
    path = write_config(tmp_path, head_dim=None, num_key_value_heads=None)
    config = read_config(path)
    assert (config.head_size, config.num_kv_heads) == (8, 4)
    assert (config.rotary.theta, config.has_tied_head) == (10000.0, False)


def test_rope_as_transformers_writes_it_since_version_5(tmp_path: Path) -> None:
    rope = {"rope_type": "linear", "rope_theta": 77.0, "factor": 2}
    rotary = read_config(write_config(tmp_path, rope_parameters=rope)).rotary
    assert (rotary.kind, rotary.theta, rotary.factor) == ("linear", 77.0, 2.0)


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, Unimplemented, "'GemmaForCausalLM'"),
        ({"hidden_act": "gelu"}, Unimplemented, "hidden_act = 'gelu'"),
        ({"mlp_bias": True}, Unimplemented, "mlp_bias"),
        ({"attention_bias": True}, Unimplemented, "attention_bias"),
        ({"quantization_config": {"bits": 4}}, Unimplemented, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, Unimplemented, "partial_rotary_factor"),
        ({"sliding_window": 128}, Unimplemented, "sliding_window = 128"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, Unimplemented, "'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, InvalidArgument, "factor is None"),
        ({"rope_scaling": "linear"}, InvalidArgument, "not an object"),
        ({"hidden_size": "32"}, InvalidArgument, "hidden_size is '32'"),
        ({"hidden_size": True}, InvalidArgument, "hidden_size is True"),
        ({"rms_norm_eps": "small"}, InvalidArgument, "rms_norm_eps is 'small'"),
        ({"num_hidden_layers": None}, InvalidArgument, "num_hidden_layers is None"),
    ],
)
def test_decoders_that_are_not_built(
    tmp_path: Path, fields: Any, error: type[ServingError], said: str
) -> None:
    with pytest.raises(error, match=said):
        read_config(write_config(tmp_path, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": 256},
        {"sliding_window": 8, "use_sliding_window": False},
        {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 8},
    ],
)
def test_windows_that_are_not_used(tmp_path: Path, fields: Any) -> None:
    assert read_config(write_config(tmp_path, **fields)).max_context == 256


@pytest.mark.parametrize(("text", "error"), [("{", DataLoss), ("[]", DataLoss), (None, NotFound)])
def test_a_config_that_cannot_be_read(
    tmp_path: Path, text: str | None, error: type[ServingError]
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(error):
        read_config(tmp_path / "config.json")


def test_the_digest_changes_with_weights_and_config(tmp_path: Path) -> None:
    weights = tiny_weights(has_head=False, has_bias=False, has_head_norms=False)
    digests = set()
    for theta, scale in ((1.0, 1.0), (2.0, 1.0), (2.0, 1.5), (2.0, 1.5)):
        scaled = {name: weight * scale for name, weight in weights.items()}
        write_hugging_face(
            tmp_path, architecture="LlamaForCausalLM", weights=scaled, rope_theta=theta
        )
        digests.add(HuggingFaceWeights(tmp_path).digest)
    assert len(digests) == 3


@pytest.mark.parametrize(
    "index", [{"weight_map": {"a": "../../etc/passwd"}}, {"weight_map": {"a": "/etc/passwd"}}, {}]
)
def test_an_index_names_files_beside_it_only(tmp_path: Path, index: Any) -> None:
    write_config(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidArgument):
        HuggingFaceWeights(tmp_path)
