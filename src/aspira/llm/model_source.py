"""A language model that is yet to be loaded: its options, and what makes its parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.servable import Loader, Servable, Served
from aspira.llm.decoder_loading import load_runner, load_saved_decoder
from aspira.llm.decoders.options import DecoderOptions
from aspira.llm.model_files import (
    OPTIONS_FILE,
    ModelFiles,
    ModelKind,
    find_model_files,
    make_options,
    read_options,
)
from aspira.llm.model_text import ModelText, load_text
from aspira.llm.options import EngineOptions
from aspira.llm.runner import Runner
from aspira.llm.saved_decoders.next_token import NextTokenLoader
from aspira.llm.saved_decoders.shared_session import SharedSession
from aspira.llm.serving_options import RequestLimits


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The tables of a model's options file."""

    decoder: DecoderOptions = field(default_factory=DecoderOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    limits: RequestLimits = field(default_factory=RequestLimits)


class LanguageModelSource(Protocol):
    """One version, found on disk. Its methods block, for seconds, and take much memory."""

    @property
    def options(self) -> SourceOptions: ...

    def make_runner(self, *, cache_mib: int) -> Runner:
        """A decoder with a cache of this size.

        Raises:
            ServingError: a file cannot be read, or is not served.
        """
        ...

    def make_text(self, *, max_tokens: int) -> ModelText:
        """Its tokenizer and template. `max_tokens` is the context that there is room for.

        Raises:
            ServingError: a file cannot be read, or is not served.
        """
        ...

    def predictor_loader(self) -> Loader[Servable] | None:
        """What loads the answers to plain predictions, which few language models have."""
        ...


Queued = Callable[[Loader[Servable]], Loader[Served]]
"""Wraps the loader of a servable so that its requests are queued and may share runs."""


def load_predictor(source: LanguageModelSource, *, queued: Queued) -> Served | None:
    """What answers plain predictions on the same version, if anything does.

    Raises:
        ServingError: it cannot be loaded.
    """
    loader = source.predictor_loader()
    return None if loader is None else queued(loader).load()


class FindLanguageModel(Protocol):
    """Looks into a version directory; None where there is something else.

    Raises:
        ServingError: it is a language model, and cannot be served as it is.
    """

    def __call__(self, path: Path) -> LanguageModelSource | None: ...


class FileSource:
    """The files of a version directory."""

    def __init__(self, files: ModelFiles, *, options: SourceOptions) -> None:
        self._files = files
        self._options = options

    @property
    def options(self) -> SourceOptions:
        return self._options

    def make_runner(self, *, cache_mib: int) -> Runner:
        return load_runner(self._files, options=replace(self._options.decoder, cache_mib=cache_mib))

    def make_text(self, *, max_tokens: int) -> ModelText:
        return load_text(self._files, max_tokens=max_tokens)

    def predictor_loader(self) -> Loader[Servable] | None:
        return None


class SavedModelSource(FileSource):
    """A SavedModel, which its runner and plain predictions share."""

    def __init__(self, files: ModelFiles, *, options: SourceOptions) -> None:
        super().__init__(files, options=options)
        self._session = SharedSession(files.directory)

    def make_runner(self, *, cache_mib: int) -> Runner:
        options = replace(self.options.decoder, cache_mib=cache_mib)
        return load_saved_decoder(self._session, options=options)

    def predictor_loader(self) -> Loader[Servable]:
        return NextTokenLoader(self._session)


def find_language_model(path: Path) -> FileSource | None:
    """See `FindLanguageModel`."""
    files = find_model_files(path)
    if files is None:
        return None
    kind = SavedModelSource if files.kind is ModelKind.SAVED_MODEL else FileSource
    return kind(files, options=_decode_options(read_options(files)))


def _decode_options(tables: Mapping[str, Mapping[str, Any]]) -> SourceOptions:
    known = ("decoder", "engine", "limits")
    for name in tables:
        if name not in known:
            raise InvalidArgument(f"{OPTIONS_FILE} has no table [{name}]; it knows {known}")
    return SourceOptions(
        make_options(DecoderOptions, table=tables.get("decoder", {}), name="decoder"),
        make_options(EngineOptions, table=tables.get("engine", {}), name="engine"),
        make_options(RequestLimits, table=tables.get("limits", {}), name="limits"),
    )
