"""An IR as optimum-intel writes them, of one layer, served with a paged cache."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import pytest
from openvino import opset15 as ops
from openvino.op.util import Variable, VariableInfo

from aspira.contracts.errors import DataLoss, InvalidArgument, Unimplemented
from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import ModelFiles, find_model_files
from language_models import Chunk, run

VOCABULARY, HIDDEN, HEADS, HEAD = 23, 32, 2, 16
TOKENS = np.random.default_rng(2).integers(0, VOCABULARY, 50)

Floats = npt.NDArray[np.float32]


def make_weights() -> dict[str, Floats]:
    random = np.random.default_rng(1)
    shapes = {
        "embedding": (VOCABULARY, HIDDEN),
        "positions": (64, HIDDEN),
        "head": (VOCABULARY, HIDDEN),
    }
    shapes |= dict.fromkeys(("query", "key", "value", "out"), (HIDDEN, HIDDEN))
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def parameter(name: str, shape: list[int], dtype: ov.Type = ov.Type.i64) -> Any:
    made = ops.parameter(ov.PartialShape(shape), dtype)
    made.set_friendly_name(name)
    made.output(0).set_names({name})
    return made


def stateful(heads: Any, *, name: str, tokens: Any, beams: Any) -> tuple[Any, Any]:
    """What earlier calls left behind with `heads` at its end, and the assignment to keep it."""
    batch = ops.gather(ops.shape_of(tokens), np.array([0]), np.int64(0))
    shape = ops.concat([batch, np.array([HEADS, 0, HEAD], np.int64)], axis=0)
    info = VariableInfo()
    info.data_shape, info.data_type = ov.PartialShape([-1, HEADS, -1, HEAD]), ov.Type.f32
    info.variable_id = name
    variable = Variable(info)
    past = ops.read_value(ops.broadcast(np.float32(0), shape), variable)
    whole = ops.concat([ops.gather(past, beams, np.int64(0)), heads], axis=-2)
    return whole, ops.assign(whole, variable)


def make_ir(weights: dict[str, Floats]) -> ov.Model:
    tokens, mask = parameter("input_ids", [-1, -1]), parameter("attention_mask", [-1, -1])
    positions = parameter("position_ids", [-1, -1])
    beams = parameter("beam_idx", [-1], ov.Type.i32)
    embedded = ops.gather(weights["embedding"], tokens, np.int64(0))
    hidden = ops.add(embedded, ops.gather(weights["positions"], positions, np.int64(0)))
    heads = {}
    for part in ("query", "key", "value"):
        product = ops.matmul(hidden, weights[part], False, True)
        split = ops.reshape(product, np.array([0, 0, HEADS, HEAD]), special_zero=True)
        heads[part] = ops.transpose(split, np.array([0, 2, 1, 3]))
    keys, keep_keys = stateful(heads["key"], name="key", tokens=tokens, beams=beams)
    values, keep_values = stateful(heads["value"], name="value", tokens=tokens, beams=beams)
    allowed = ops.unsqueeze(ops.convert(mask, "boolean"), np.array([1, 2]))
    attended = ops.scaled_dot_product_attention(heads["query"], keys, values, allowed)
    flat = ops.reshape(
        ops.transpose(attended, np.array([0, 2, 1, 3])), np.array([0, 0, HIDDEN]), special_zero=True
    )
    hidden = ops.add(hidden, ops.matmul(flat, weights["out"], False, True))
    logits = ops.matmul(hidden, weights["head"], False, True)
    logits.output(0).set_names({"logits"})
    return ov.Model(
        [ops.result(logits)], [keep_keys, keep_values], [tokens, mask, positions, beams], "decoder"
    )


def expected_logits(weights: dict[str, Floats]) -> Floats:
    hidden = weights["embedding"][TOKENS] + weights["positions"][: len(TOKENS)]
    query, key, value = (
        (hidden @ weights[part].T).reshape(-1, HEADS, HEAD).swapaxes(0, 1)
        for part in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(1, 2) / np.sqrt(HEAD)
    shares = np.exp(scores) * np.tri(len(TOKENS))
    attended = (shares / shares.sum(axis=-1, keepdims=True)) @ value
    hidden = hidden + attended.swapaxes(0, 1).reshape(-1, HIDDEN) @ weights["out"].T
    return (hidden @ weights["head"].T).astype(np.float32)


def write(directory: Path, model: ov.Model | None, **config: Any) -> ModelFiles:
    fields = {"architectures": ["SomethingForCausalLM"], "max_position_embeddings": 64, **config}
    (directory / "config.json").write_text(json.dumps(fields))
    path = directory / "openvino_model.xml"
    if model is None:
        path.write_text("<net")
    else:
        ov.save_model(model, path, compress_to_fp16=False)
    files = find_model_files(directory)
    assert files is not None
    return files


OPTIONS = DecoderOptions(precision="f32", cache_mib=1)


def test_an_ir_is_served_in_steps(tmp_path: Path) -> None:
    weights = make_weights()
    runner = load_runner(write(tmp_path, make_ir(weights)), options=OPTIONS)
    expected = expected_logits(weights)
    assert (runner.vocab_size, runner.max_context, runner.block_size) == (VOCABULARY, 64, 32)
    whole = run(runner, Chunk(TOKENS, past=0, blocks=[3, 1]), rows=range(50))
    np.testing.assert_allclose(whole, expected, atol=1e-4)
    run(runner, Chunk(TOKENS[:40], past=0, blocks=[2, 0]), rows=[])
    mixed = run(
        runner, Chunk(TOKENS[40:], past=40, blocks=[2, 0]), Chunk(TOKENS[:7], past=0, blocks=[4])
    )
    np.testing.assert_allclose(mixed, expected[[49, 6]], atol=1e-4)


def test_the_fingerprint_is_the_files(tmp_path: Path) -> None:
    weights = make_weights()
    files = write(tmp_path, make_ir(weights))
    first, again = (load_runner(files, options=OPTIONS).kv_fingerprint for _ in range(2))
    weights["out"] = weights["out"] * 2
    other = load_runner(write(tmp_path, make_ir(weights)), options=OPTIONS).kv_fingerprint
    assert first == again != other


def test_a_model_without_attention(tmp_path: Path) -> None:
    tokens = parameter("input_ids", [-1, -1])
    model = ov.Model([ops.gather(np.ones((5, 4), np.float32), tokens, np.int64(0))], [tokens], "no")
    with pytest.raises(Unimplemented, match=r"cannot be served with a paged cache|no attention"):
        load_runner(write(tmp_path, model), options=OPTIONS)


def test_a_file_that_is_no_ir(tmp_path: Path) -> None:
    with pytest.raises(DataLoss, match="not an OpenVINO IR"):
        load_runner(write(tmp_path, None), options=OPTIONS)


def test_a_config_must_say_how_long_the_context_is(tmp_path: Path) -> None:
    files = write(tmp_path, make_ir(make_weights()), max_position_embeddings=None)
    with pytest.raises(InvalidArgument, match="max_position_embeddings is None"):
        load_runner(files, options=OPTIONS)
