"""Recognises an encoder by what its version directory holds.

    1/config.json model.safetensors tokenizer.json           a Hugging Face directory
    1/openvino_model.xml openvino_model.bin config.json ...  an OpenVINO IR of one
    1/model.onnx config.json tokenizer.json                  an ONNX file of one
    1/aspira_llm.toml                                        options beside any of them, if wanted

Hubs keep IR and ONNX files in folders `openvino` and `onnx`, where they are found too.
"""

from pathlib import Path

from aspira.contracts.errors import ServingError, Unimplemented
from aspira.llm.encoders.config import ARCHITECTURES, name_architecture
from aspira.llm.encoders.options import EncoderOptions
from aspira.llm.model_files import (
    CONFIG_FILE,
    IR_FILE,
    OPTIONS_FILE,
    ModelFiles,
    ModelKind,
    make_options,
    read_options,
)
from aspira.llm.weights.bounded_files import read_json

# transformers' names of classes that predict nothing, but give hidden states.
_ENCODER_ENDING = "Model"
_GRAPHS = (f"openvino/{IR_FILE}", "model.onnx", "onnx/model.onnx")
_SAVED_MODEL = "saved_model.pb"


def find_encoder_files(directory: Path) -> ModelFiles | None:
    """The encoder in a version directory; None where there is something else.

    Raises:
        Unimplemented: it is an encoder, of a kind that is not built here.
    """
    architecture = _read_architecture(directory / CONFIG_FILE)
    if not architecture.endswith(_ENCODER_ENDING) or (directory / _SAVED_MODEL).exists():
        return None
    if (directory / IR_FILE).is_file():
        return ModelFiles(directory, ModelKind.OPENVINO_IR, directory / IR_FILE)
    has_weights = any(directory.glob("*.safetensors"))
    if has_weights and architecture in ARCHITECTURES:
        return ModelFiles(directory, ModelKind.HUGGING_FACE, directory)
    for graph in _GRAPHS:
        if (directory / graph).is_file():
            return ModelFiles(directory, ModelKind.OPENVINO_IR, directory / graph)
    if not has_weights:
        return None
    raise Unimplemented(
        f"{directory}: the architecture {architecture} is not built here "
        f"({', '.join(sorted(ARCHITECTURES))} are); export it with optimum-cli export openvino "
        "--task feature-extraction, and serve what that writes"
    )


def read_encoder_options(files: ModelFiles) -> EncoderOptions:
    """The table `[encoder]` of the options file.

    Raises:
        ServingError: it cannot be read, or has an entry that is unknown or wrong.
    """
    tables = read_options(files)
    for name in tables:
        if name != "encoder":
            raise Unimplemented(f"{OPTIONS_FILE} of an encoder has no table [{name}]: [encoder] is")
    return make_options(EncoderOptions, table=tables.get("encoder", {}), name="encoder")


def _read_architecture(config: Path) -> str:
    if not config.is_file():
        return ""
    try:
        return name_architecture(read_json(config))
    except ServingError:
        # Some other model's config.json, and not ours to complain about.
        return ""
