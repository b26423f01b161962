"""Chooses at each load, by what a version directory holds: a language model, or something else."""

from pathlib import Path

from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Served
from aspira.llm.loader import LanguageModelContext, LanguageModelLoader
from aspira.llm.model_source import FindLanguageModel


class LanguageModels:
    """Makes loaders that serve language models where `find` finds them."""

    def __init__(self, find: FindLanguageModel, *, context: LanguageModelContext) -> None:
        self._find = find
        self._context = context

    def make_loader(
        self, servable_id: ServableId, *, path: Path, otherwise: Loader[Served]
    ) -> Loader[Served]:
        """`otherwise` loads what is no language model."""
        return _Choice(
            path,
            servable_id=servable_id,
            find=self._find,
            context=self._context,
            otherwise=otherwise,
        )


class _Choice:
    def __init__(
        self,
        path: Path,
        *,
        servable_id: ServableId,
        find: FindLanguageModel,
        context: LanguageModelContext,
        otherwise: Loader[Served],
    ) -> None:
        self._path = path
        self._servable_id = servable_id
        self._find = find
        self._context = context
        self._otherwise = otherwise

    def load(self) -> Served:
        source = self._find(self._path)
        if source is None:
            return self._otherwise.load()
        loader = LanguageModelLoader(source, servable_id=self._servable_id, context=self._context)
        return loader.load()
