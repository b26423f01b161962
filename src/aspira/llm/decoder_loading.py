"""Makes a runner of what a version directory holds."""

from pathlib import Path

from aspira.contracts.errors import InvalidArgument, Unimplemented
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import CONFIG_FILE, ModelFiles, ModelKind
from aspira.llm.runner import Runner
from aspira.llm.saved_decoders.description import read_description
from aspira.llm.saved_decoders.shared_session import SharedSession
from aspira.llm.tensorflow_runner import TensorflowRunner
from aspira.llm.weights.bounded_files import digest_files, read_json
from aspira.llm.weights.model_weights import open_weights


def load_runner(files: ModelFiles, *, options: DecoderOptions) -> Runner:
    """A decoder and its cache, ready for steps. Takes seconds, and the memory of the weights.

    Raises:
        ServingError: a file cannot be read, describes what is not served, or does not fit.
    """
    if files.kind is ModelKind.SAVED_MODEL:
        return load_saved_decoder(SharedSession(files.directory), options=options)
    return _load_openvino(files, options=options)


def load_saved_decoder(session: SharedSession, *, options: DecoderOptions) -> Runner:
    """A decoder of a SavedModel, whose session others may use as well.

    Raises:
        ServingError: the files cannot be read, are of another format, or the cache does not fit.
    """
    description = read_description(session.directory)
    return TensorflowRunner(session, description=description, options=options)


def _load_openvino(files: ModelFiles, *, options: DecoderOptions) -> Runner:
    try:
        import openvino as ov
    except ImportError as error:
        raise Unimplemented(
            "Language models need the package openvino: pip install 'aspira[llm]'"
        ) from error
    from aspira.llm.decoders.builder import build_decoder
    from aspira.llm.decoders.intermediate_representation import read_ir
    from aspira.llm.openvino_runner import DEVICE, OpenvinoRunner

    core = ov.Core()
    capabilities = core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")
    decided = options.resolved(has_bfloat16="BF16" in capabilities)
    if files.kind is ModelKind.OPENVINO_IR:
        return OpenvinoRunner(
            read_ir(core, path=files.weights),
            digest=digest_files([files.weights, files.weights.with_suffix(".bin")]),
            max_context=_read_max_context(files.directory / CONFIG_FILE),
            options=decided,
        )
    config, weights = open_weights(files)
    return OpenvinoRunner(
        build_decoder(config, weights=weights, weight_format=decided.weight_format),
        digest=weights.digest,
        max_context=config.max_context,
        options=decided,
    )


def _read_max_context(config: Path) -> int:
    value = read_json(config).get("max_position_embeddings")
    if not isinstance(value, int) or value < 1:
        raise InvalidArgument(
            f"{config}: max_position_embeddings is {value!r}; set it to the model's context length"
        )
    return value
