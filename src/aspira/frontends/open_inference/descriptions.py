"""What the protocol tells of the server and its models."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aspira import __version__
from aspira.contracts.errors import FailedPrecondition
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME, ModelName, ModelSpec
from aspira.contracts.signatures import Signature, TensorSpec
from aspira.frontends.open_inference.tensors import datatype_name
from aspira.frontends.open_inference.text_order import TEXT_INPUTS, TEXT_OUTPUTS
from aspira.service.drain import RequestGate
from aspira.service.models import ModelsService

SERVER_NAME = "aspira"
SERVER_VERSION = __version__
EXTENSIONS = ("binary_tensor_data", "generate", "model_configuration", "parameters")

_TEXT_PLATFORM = "aspira_text"
_TENSOR_PLATFORM = "aspira_tensors"


class TensorDescription(NamedTuple):
    """An input or an output; -1 in `shape` is any size, a shape that is not known is [-1]."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_optional: bool = False


class ModelDescription(NamedTuple):
    """A model. `is_decoupled`: one request may have several answers."""

    name: str
    versions: tuple[int, ...]
    platform: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    is_decoupled: bool


class Descriptions:
    """Event loop only."""

    def __init__(self, models: ModelsService, *, gate: RequestGate) -> None:
        self._models = models
        self._gate = gate

    @property
    def is_ready(self) -> bool:
        """Whether the server takes requests, and some model can answer."""
        return self._gate.is_open and self._models.can_serve()

    def check_ready(self, spec: ModelSpec) -> None:
        """See `ModelsService.check_ready`."""
        self._models.check_ready(spec)

    def describe(self, spec: ModelSpec) -> ModelDescription:
        """A loaded model.

        Raises:
            NotFound: no such model or version is ready.
            FailedPrecondition: it has no signature that could be told of.
        """
        metadata = self._models.metadata(spec)
        name = ModelName(spec.name)
        versions = tuple(self._models.ready_versions(name))
        if metadata.is_language_model:
            return ModelDescription(
                name,
                versions,
                _TEXT_PLATFORM,
                tuple(
                    TensorDescription(alias, datatype, (1,), is_optional=alias != "text_input")
                    for alias, datatype in TEXT_INPUTS.items()
                ),
                tuple(
                    TensorDescription(alias, datatype, (-1,))
                    for alias, datatype in TEXT_OUTPUTS.items()
                ),
                is_decoupled=True,
            )
        signature = _find_signature(metadata.signatures, name=name)
        return ModelDescription(
            name,
            versions,
            _TENSOR_PLATFORM,
            tuple(_describe(signature.inputs, optional=signature.defaults)),
            tuple(_describe(signature.outputs)),
            is_decoupled=False,
        )


def _find_signature(signatures: Mapping[str, Signature], *, name: str) -> Signature:
    found = signatures.get(DEFAULT_SIGNATURE_NAME)
    if found is None:
        raise FailedPrecondition(
            f"{name} has no signature {DEFAULT_SIGNATURE_NAME}, which the protocol tells of; it "
            f"can be asked for one of {', '.join(sorted(signatures))} by the parameter "
            "signature_name"
        )
    return found


def _describe(
    specs: Mapping[str, TensorSpec], *, optional: Iterable[str] = ()
) -> Iterable[TensorDescription]:
    for alias, spec in specs.items():
        shape = (None,) if spec.shape is None else spec.shape
        yield TensorDescription(
            alias,
            datatype_name(spec.dtype),
            tuple(-1 if size is None else size for size in shape),
            is_optional=alias in optional,
        )
