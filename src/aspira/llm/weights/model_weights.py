"""Opens the weights of a language model, whatever they are kept in."""

from typing import NamedTuple

from aspira.llm.decoders.config import DecoderConfig
from aspira.llm.model_files import ModelFiles, ModelKind
from aspira.llm.weights import gguf_config, hugging_face_config
from aspira.llm.weights.gguf import GgufWeights
from aspira.llm.weights.gguf_file import GgufFile
from aspira.llm.weights.hugging_face import HuggingFaceWeights
from aspira.llm.weights.source import Weights


class ModelWeights(NamedTuple):
    """A decoder's shape and what fills it."""

    config: DecoderConfig
    weights: Weights


def open_weights(files: ModelFiles) -> ModelWeights:
    """Those of a GGUF file or a Hugging Face directory; an IR holds a graph instead.

    Raises:
        ServingError: the files cannot be read, or describe a decoder that is not served.
    """
    assert files.kind is not ModelKind.OPENVINO_IR
    if files.kind is ModelKind.GGUF:
        file = GgufFile(files.weights)
        config = gguf_config.read_config(file)
        return ModelWeights(config, GgufWeights(file, config=config))
    config = hugging_face_config.read_config(files.directory / hugging_face_config.CONFIG_FILE)
    return ModelWeights(config, HuggingFaceWeights(files.directory))
