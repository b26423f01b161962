"""Chooses at each load, by what a version directory holds: a language model, or something else."""

from pathlib import Path

from aspira.contracts.identity import ServableId
from aspira.contracts.servable import Loader, Served
from aspira.llm.loader import LanguageModelContext, LanguageModelLoader, Queued
from aspira.llm.model_source import FindLanguageModel


class LanguageModels:
    """Makes loaders that serve language models where `find` finds them."""

    def __init__(self, find: FindLanguageModel, *, context: LanguageModelContext) -> None:
        self._find = find
        self._context = context

    def make_loader(
        self, servable_id: ServableId, *, path: Path, otherwise: Loader[Served], queued: Queued
    ) -> Loader[Served]:
        """`otherwise` loads what is no language model; `queued` is for one's plain predictions."""
        return _Choice(
            path,
            servable_id=servable_id,
            find=self._find,
            context=self._context,
            otherwise=otherwise,
            queued=queued,
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
