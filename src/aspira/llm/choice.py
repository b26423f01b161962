"""Chooses at each load, by what a version directory holds: a language model, or something else."""

from collections.abc import Callable
from pathlib import Path

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import ModelName, ServableId
from aspira.contracts.servable import Loader, Served
from aspira.llm.loader import LanguageModelContext, LanguageModelLoader
from aspira.llm.model_source import FindLanguageModel, LanguageModelSource, Queued


class LanguageModels:
    """Makes loaders that serve language models where `find` finds them."""

    def __init__(
        self,
        find: FindLanguageModel,
        *,
        context: LanguageModelContext,
        must_generate: Callable[[ModelName], bool] = lambda _: False,
    ) -> None:
        """`must_generate` tells the models that may be nothing else."""
        self._find = find
        self._context = context
        self._must_generate = must_generate

    def make_loader(
        self, servable_id: ServableId, *, path: Path, otherwise: Loader[Served], queued: Queued
    ) -> Loader[Served]:
        """`otherwise` loads what is no language model; `queued` is for one's plain predictions."""
        return _Choice(
            path,
            servable_id=servable_id,
            find=self._find_only if self._must_generate(servable_id.name) else self._find,
            context=self._context,
            otherwise=otherwise,
            queued=queued,
        )

    def _find_only(self, path: Path) -> LanguageModelSource:
        source = self._find(path)
        if source is None:
            raise InvalidArgument(
                f"The model is configured as a language_model, and {path} holds none: no GGUF "
                "file, and no Hugging Face directory, OpenVINO IR or SavedModel of a decoder. "
                "Other models are of model_platform tensorflow"
            )
        return source


class _Choice:
    def __init__(
        self,
        path: Path,
        *,
        servable_id: ServableId,
        find: FindLanguageModel,
        context: LanguageModelContext,
        otherwise: Loader[Served],
        queued: Queued,
    ) -> None:
        self._path = path
        self._servable_id = servable_id
        self._find = find
        self._context = context
        self._otherwise = otherwise
        self._queued = queued

    def load(self) -> Served:
        source = self._find(self._path)
        if source is None:
            return self._otherwise.load()
        loader = LanguageModelLoader(
            source, servable_id=self._servable_id, context=self._context, queued=self._queued
        )
        return loader.load()
