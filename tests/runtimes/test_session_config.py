from pathlib import Path

import pytest
from tensorflow.core.protobuf import rewriter_config_pb2

from aspira.runtimes.options import TensorflowOptions
from aspira.runtimes.tensorflow import make_session_config

DEFAULT, ON = rewriter_config_pb2.RewriterConfig.DEFAULT, rewriter_config_pb2.RewriterConfig.ON


@pytest.mark.parametrize(("precision", "toggle"), [("", DEFAULT), ("bfloat16", ON)])
def test_graphs_are_rewritten_to_bfloat16_only_when_asked(precision: str, toggle: int) -> None:
    config = make_session_config(TensorflowOptions(mixed_precision=precision))
    rewrites = config.graph_options.rewrite_options
    assert rewrites.auto_mixed_precision_onednn_bfloat16 == toggle


def test_the_flag_leaves_the_files_other_rewrites_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "session.config"
    file.write_text("graph_options { rewrite_options { constant_folding: OFF } }")
    options = TensorflowOptions(session_config_file=str(file), mixed_precision="bfloat16")
    rewrites = make_session_config(options).graph_options.rewrite_options
    assert rewrites.constant_folding == rewriter_config_pb2.RewriterConfig.OFF
    assert rewrites.auto_mixed_precision_onednn_bfloat16 == ON
