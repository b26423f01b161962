"""Metadata of TensorFlow Serving's own test models, against its own golden files."""

import json
import os
from pathlib import Path

import pytest

from asgi_exchange import get
from aspira.version_loaders import make_runtime_loader
from serving_toys import ask, config_entry, listed_models

TEST_DATA = Path(
    os.environ.get("ASPIRA_TFSERVING_TESTDATA")
    or Path(__file__).parents[3] / "shared" / "testdata" / "tfserving"
)

pytestmark = pytest.mark.skipif(
    not TEST_DATA.is_dir(), reason="TensorFlow Serving's test data is not here"
)


@pytest.mark.parametrize(
    ("model", "golden"),
    [
        ("saved_model_half_plus_two_cpu", "half_plus_two_model_metadata.json"),
        (
            "saved_model_half_plus_two_2_versions",
            "saved_model_half_plus_two_2_versions_metadata.json",
        ),
    ],
)
def test_metadata(tmp_path: Path, model: str, golden: str) -> None:
    entry = config_entry(TEST_DATA / model, fields="model_version_policy { all {} }")
    settings = listed_models(tmp_path / "models.config", entries=[entry])
    question = get(f"/v1/models/{model}/versions/123/metadata")
    (answer,) = ask(settings, question, make_runtime_loader=make_runtime_loader)
    expected = json.loads((TEST_DATA / golden).read_text())
    assert answer.json["metadata"] == expected["metadata"]
    assert answer.json["model_spec"] == {**expected["model_spec"], "name": model}


def test_a_model_of_tensorflow_2_lists_its_internal_signature(tmp_path: Path) -> None:
    model = "saved_model_half_plus_two_tf2_cpu"
    golden = "saved_model_half_plus_two_tf2_2_versions_metadata.json"
    settings = listed_models(tmp_path / "models.config", entries=[config_entry(TEST_DATA / model)])
    question = get(f"/v1/models/{model}/metadata")
    (answer,) = ask(settings, question, make_runtime_loader=make_runtime_loader)
    expected = json.loads((TEST_DATA / golden).read_text())
    name = "__saved_model_init_op"
    found, wanted = (
        each["metadata"]["signature_def"]["signature_def"] for each in (answer.json, expected)
    )
    # The golden file is of the model as an older TensorFlow wrote it, without defaults.
    assert found.keys() - {name} <= wanted.keys()
    assert found[name] == {**wanted[name], "defaults": {}}
