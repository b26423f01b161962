"""Vectors of tiny and real encoders, against those of transformers on the same weights."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import pytest

from aspira.contracts.errors import DataLoss, InvalidArgument, ServingError, Unimplemented
from aspira.contracts.tensors import Tensor
from aspira.llm.encoders.config import read_encoder_config
from aspira.llm.encoders.files import find_encoder_files, read_encoder_options
from aspira.llm.encoders.graph import EncoderWeights, build_encoder
from aspira.llm.encoders.sentence_files import read_sentence_rules
from aspira.llm.encoders.servable import EncoderServable, load_servable, pad_rows
from aspira.llm.encoders.text import load_encoder_text
from encoder_models import HIDDEN, TINY, minilm_directory, write_encoder, write_sentence_files
from onnx_files import write_gather

GOLDEN = json.loads((Path(__file__).parent / "tiny_golden.json").read_text())
MINILM = json.loads((Path(__file__).parent / "minilm_golden.json").read_text())
TEXTS = GOLDEN["texts"]

Vectors = npt.NDArray[np.float32]


def load(directory: Path) -> EncoderServable:
    files = find_encoder_files(directory)
    assert files is not None
    rules = read_sentence_rules(directory)
    text = load_encoder_text(files, rules=rules)
    return load_servable(files, text=text, rules=rules, options=read_encoder_options(files))


def embed(servable: EncoderServable, texts: Sequence[Sequence[int]]) -> Tensor:
    ids, lengths = pad_rows([tuple(text) for text in texts])
    inputs = {"input_ids": ids, "num_tokens": lengths}
    return servable.run("tokens", inputs=inputs, outputs=("embedding",))["embedding"]


@pytest.mark.parametrize(
    ("architecture", "activation"), [("BertModel", "gelu"), ("RobertaModel", "gelu_new")]
)
@pytest.mark.parametrize("pooling", ["cls_token", "mean_tokens", "max_tokens"])
def test_each_pooling_as_the_reference_has_it(
    tmp_path: Path, architecture: str, activation: str, pooling: str
) -> None:
    write_encoder(tmp_path, architectures=[architecture], hidden_act=activation)
    write_sentence_files(tmp_path, pooling=pooling, is_normalized=False)
    expected = GOLDEN["vectors"][architecture][pooling]
    np.testing.assert_allclose(embed(load(tmp_path), TEXTS), expected, atol=1e-5)


def test_a_text_has_one_vector_whatever_is_in_its_batch(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    servable = load(tmp_path)
    alone = [embed(servable, [text])[0] for text in TEXTS]
    np.testing.assert_allclose(embed(servable, TEXTS), alone, atol=1e-6)
    # The batcher pads with the first element, not with zeros.
    ids, lengths = pad_rows([tuple(text) for text in TEXTS])
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = 7
    inputs = {"input_ids": ids, "num_tokens": lengths}
    padded = servable.run("tokens", inputs=inputs, outputs=("embedding",))["embedding"]
    np.testing.assert_allclose(padded, alone, atol=1e-6)


def test_an_ir_of_it_is_served_alike(tmp_path: Path) -> None:
    write_encoder(tmp_path / "source")
    weights = EncoderWeights(tmp_path / "source")
    config = read_encoder_config(tmp_path / "source" / "config.json")
    model = build_encoder(config, weights=weights)
    write_encoder(tmp_path / "ir", architectures=["SomethingModel"])
    write_sentence_files(tmp_path / "ir")
    (tmp_path / "ir" / "model.safetensors").unlink()
    ov.save_model(model, tmp_path / "ir" / "openvino_model.xml", compress_to_fp16=False)
    expected = np.array(GOLDEN["vectors"]["BertModel"]["mean_tokens"])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embed(load(tmp_path / "ir"), TEXTS), expected, atol=1e-5)


def test_an_onnx_file_is_served(tmp_path: Path) -> None:
    write_encoder(tmp_path, architectures=["SomethingModel"])
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "onnx").mkdir()
    table = np.random.default_rng(3).normal(size=(TINY["vocab_size"], HIDDEN)).astype(np.float32)
    write_gather(tmp_path / "onnx" / "model.onnx", table=table)
    expected = [table[text].mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(embed(load(tmp_path), TEXTS), expected, atol=1e-5)


def test_minilm_is_what_sentence_transformers_makes_of_it() -> None:
    servable = load(minilm_directory())
    texts = np.array([entry["text"].encode() for entry in MINILM], object)
    vectors = servable.run("serving_default", inputs={"text": texts}, outputs=("embedding",))
    expected = [entry["vector"] for entry in MINILM]
    np.testing.assert_allclose(vectors["embedding"], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        ([[1, 24]], [2], "must be 0 to 23"),
        ([[1, -1]], [2], "must be 0 to 23"),
        ([[1, 2]], [3], "num_tokens must be 1 to 2"),
        ([[1, 2]], [0], "num_tokens must be 1 to 2"),
        ([[1] * 40], [40], "context is 34 tokens"),
        ([1, 2], [1], r"input_ids has shape \[2\]"),
        ([[1, 2]], [[1]], r"num_tokens \[1, 1\]"),
    ],
)
def test_what_would_be_read_outside_of_memory(
    tmp_path: Path, ids: Any, lengths: Any, message: str
) -> None:
    write_encoder(tmp_path)
    inputs = {"input_ids": np.array(ids, np.int32), "num_tokens": np.array(lengths, np.int32)}
    with pytest.raises(InvalidArgument, match=message):
        load(tmp_path).run("tokens", inputs=inputs, outputs=("embedding",))


def test_inputs_of_another_type(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    servable = load(tmp_path)
    longs: dict[str, Tensor] = {"input_ids": np.ones((1, 2), np.int64)}
    with pytest.raises(InvalidArgument, match="input_ids is of type int64, expected int32"):
        servable.run("tokens", inputs=longs, outputs=())
    bytes_: dict[str, Tensor] = {"text": np.array([b"\xff"], object)}
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        servable.run("serving_default", inputs=bytes_, outputs=())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"hidden_act": "mish"}, Unimplemented, "hidden_act = 'mish' is not served"),
        ({"position_embedding_type": "relative_key"}, Unimplemented, "export the model"),
        ({"num_attention_heads": 3}, InvalidArgument, "cannot be"),
        ({"hidden_size": None}, InvalidArgument, "hidden_size is None"),
        ({"num_hidden_layers": 3}, DataLoss, "has no tensor encoder.layer.2"),
    ],
)
def test_a_config_that_is_not_served(
    tmp_path: Path, changes: dict[str, Any], error: type[ServingError], message: str
) -> None:
    write_encoder(tmp_path, **changes)
    with pytest.raises(error, match=message):
        load(tmp_path)


def test_a_graph_that_is_no_encoder(tmp_path: Path) -> None:
    write_encoder(tmp_path, architectures=["SomethingModel"])
    (tmp_path / "model.safetensors").unlink()
    table = np.ones((4, 2), np.float32)
    write_gather(tmp_path / "model.onnx", table=table, output="logits")
    with pytest.raises(Unimplemented, match="task feature-extraction"):
        load(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(DataLoss, match="cannot be read by OpenVINO"):
        load(tmp_path)
