"""Makes one version of an encoder ready, where a version directory holds one."""

from pathlib import Path

from aspira.batching.context import BatchingContext
from aspira.batching.options import BatchingOptions
from aspira.contracts.errors import Unimplemented
from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Served
from aspira.llm.encoders.files import find_encoder_files, read_encoder_options
from aspira.llm.encoders.model import EmbeddingModel, make_queue
from aspira.llm.encoders.sentence_files import read_sentence_rules
from aspira.llm.encoders.text import load_encoder_text
from aspira.llm.model_files import ModelFiles


class EncoderChoice:
    """Loads an encoder where there is one, and what `otherwise` loads where there is not."""

    def __init__(
        self,
        path: Path,
        *,
        servable_id: ServableId,
        batching: BatchingOptions,
        context: BatchingContext,
        otherwise: Loader[Served],
    ) -> None:
        self._path = path
        self._servable_id = servable_id
        self._batching = batching
        self._context = context
        self._otherwise = otherwise

    def load(self) -> Served:
        files = find_encoder_files(self._path)
        return self._otherwise.load() if files is None else self._load(files)

    def _load(self, files: ModelFiles) -> EmbeddingModel:
        try:
            import openvino  # noqa: F401
        except ImportError as error:
            raise Unimplemented(
                "Embedding models need the package openvino: pip install 'aspira[llm]'"
            ) from error
        from aspira.llm.encoders.servable import load_servable

        options = read_encoder_options(files)
        rules = read_sentence_rules(files.directory)
        text = load_encoder_text(files, rules=rules)
        servable = load_servable(files, text=text, rules=rules, options=options)
        # The first run allocates what later ones use, and shows that there is nothing wrong.
        servable.warm_up()
        return EmbeddingModel(
            servable,
            text=text,
            rules=rules,
            servable_id=self._servable_id,
            queue=make_queue(self._batching, encoder=options),
            context=self._context,
        )
