"""Exported graphs, run by OpenVINO alone as other tools do, and served with a paged cache."""

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from aspira.llm.decoder_loading import load_runner
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.decoders.stateful import build_stateful
from aspira.llm.model_files import ModelFiles, ModelKind
from aspira.llm.weights.model_weights import open_weights
from decoder_cases import CASES, TOKENS, expected_logits, write_case
from language_models import Chunk, run

F32 = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def build(directory: Path, name: str) -> tuple[ModelFiles, ov.Model]:
    files, _ = write_case(directory, name)
    config, weights = open_weights(files)
    return files, build_stateful(config, weights=weights, weight_format="f32")


class Stateful:
    """A graph as optimum-intel and others run one."""

    def __init__(self, model: ov.Model) -> None:
        self._request = ov.Core().compile_model(model, "CPU", F32).create_infer_request()

    def run(self, tokens: Any, *, mask: Any, positions: Any, beams: Any) -> Any:
        self._request.infer(
            {
                "input_ids": np.array(tokens, np.int64),
                "attention_mask": np.array(mask, np.int64),
                "position_ids": np.array(positions, np.int64),
                "beam_idx": np.array(beams, np.int32),
            }
        )
        return self._request.get_tensor("logits").data.copy()


@pytest.mark.parametrize("name", CASES)
def test_an_ir_of_each_family_is_served_with_a_paged_cache(tmp_path: Path, name: str) -> None:
    files, model = build(tmp_path, name)
    path = tmp_path / "openvino_model.xml"
    ov.save_model(model, path, compress_to_fp16=False)
    runner = load_runner(
        ModelFiles(tmp_path, ModelKind.OPENVINO_IR, path),
        options=DecoderOptions(precision="f32", cache_mib=4),
    )
    logits = run(runner, Chunk(TOKENS, past=0, blocks=[4, 0, 2]), rows=range(len(TOKENS)))
    np.testing.assert_allclose(logits, expected_logits(files), atol=2e-4)


def test_openvino_alone_runs_it_in_several_calls(tmp_path: Path) -> None:
    files, model = build(tmp_path, "llama")
    request = Stateful(model)
    found = []
    for begin, end in ((0, 30), (30, 31), (31, len(TOKENS))):
        logits = request.run(
            [TOKENS[begin:end]],
            mask=np.ones((1, end)),
            positions=[np.arange(begin, end)],
            beams=[0],
        )
        found.append(logits[0])
    np.testing.assert_allclose(np.concatenate(found), expected_logits(files), atol=2e-4)


def test_texts_of_a_batch_may_be_padded_and_change_places(tmp_path: Path) -> None:
    files, model = build(tmp_path, "qwen2")
    request = Stateful(model)
    whole = expected_logits(files)
    # The second text is shorter: two places before it are no text.
    tokens = [TOKENS[:8], [0, 0, *TOKENS[:6]]]
    mask = np.array([[1] * 8, [0, 0, *[1] * 6]])
    positions = [np.arange(8), [1, 1, *range(6)]]
    first = request.run(tokens, mask=mask, positions=positions, beams=[0, 1])
    np.testing.assert_allclose(first[0], whole[:8], atol=2e-4)
    np.testing.assert_allclose(first[1, 2:], whole[:6], atol=2e-4)
    mask = np.concatenate([mask[::-1], np.ones((2, 1), int)], axis=1)
    second = request.run([[TOKENS[6]], [TOKENS[8]]], mask=mask, positions=[[6], [8]], beams=[1, 0])
    np.testing.assert_allclose(second[:, 0], whole[[6, 8]], atol=2e-4)
