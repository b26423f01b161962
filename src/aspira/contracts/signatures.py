"""What a servable can be asked: named functions with typed, shaped inputs and outputs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from aspira.contracts.errors import InvalidArgument, shorten
from aspira.contracts.tensors import DataType, Tensor, Tensors

Shape = tuple[int | None, ...]

PREDICT_METHOD = "tensorflow/serving/predict"
CLASSIFY_METHOD = "tensorflow/serving/classify"
REGRESS_METHOD = "tensorflow/serving/regress"

# Clients choose what is joined; joints beyond this many are made anew for each run.
_MAX_JOINTS = 64
_MAX_GIVEN = 64


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output: `shape` None means unknown rank, a None in it an unknown size.

    `runtime_name` is the name inside the model (for TensorFlow `x:0`), for metadata and messages.
    """

    dtype: DataType
    shape: Shape | None
    runtime_name: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """A callable entry of a model. `defaults` fill inputs that a request leaves out."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method_name: str = PREDICT_METHOD
    defaults: Mapping[str, Tensor] = field(default_factory=dict)

    def bind_inputs(self, inputs: Tensors) -> Tensors:
        """The inputs of one run in the signature's order: given ones, and defaults for the rest.

        Raises:
            InvalidArgument: an alias is unknown, or missing without a default. The texts are
                TensorFlow Serving's.
        """
        if inputs.keys() == self.inputs.keys():
            return {alias: inputs[alias] for alias in self.inputs}
        self._check_num_inputs(inputs)
        bound = {}
        for alias, spec in self.inputs.items():
            tensor = inputs.get(alias, self.defaults.get(alias))
            if tensor is None:
                raise InvalidArgument(
                    f"Signature input alias: {alias}(feed name: {spec.runtime_name}) not found in"
                    " request and no default value provided. Inputs expected to be in the request"
                    f" {_names(self.inputs)}, or default input alias set: {_names(self.defaults)}"
                )
            bound[alias] = tensor
        if not inputs.keys() <= bound.keys():
            raise InvalidArgument(
                "Inputs contains invalid name. Used request inputs: "
                f"{_names(inputs.keys() & bound.keys())}, request input: {_given(inputs)}"
            )
        return bound

    def choose_outputs(self, output_filter: tuple[str, ...]) -> tuple[str, ...]:
        """The outputs to compute, in the signature's order; an empty filter means all.

        Raises:
            InvalidArgument: an alias is unknown or named twice.
        """
        if not output_filter:
            return tuple(self.outputs)
        wanted: set[str] = set()
        for alias in output_filter:
            if alias not in self.outputs:
                raise InvalidArgument(
                    f"output tensor alias not found in signature: {shorten(alias)}"
                    f" Outputs expected to be in the set {_names(self.outputs)}."
                )
            if alias in wanted:
                raise InvalidArgument(f"duplicate output tensor alias: {alias}")
            wanted.add(alias)
        return tuple(alias for alias in self.outputs if alias in wanted)

    def _check_num_inputs(self, inputs: Tensors) -> None:
        given, wanted = len(inputs), len(self.inputs)
        if given > wanted or (given < wanted and not self.defaults):
            required = self.inputs.keys() - self.defaults.keys()
            raise InvalidArgument(
                f"input size does not match signature: {given}!={wanted}"
                f" len({_given(inputs)}) != len({_names(self.inputs)})."
                f" Sent extra: {_given(inputs.keys() - self.inputs.keys())}."
                f" Missing but required: {_names(required - inputs.keys())}."
            )


class SignatureTable(dict[str, Signature]):
    """The signatures of a model whose runtime can run several of them as one.

    As a mapping it holds the model's own, which are all that clients may name. `resolve`, for the
    runtime, knows also the names that `join` gives. `internal` ones, by which a framework finds
    its own way in the model, are listed in the metadata and cannot be asked. Any thread; nobody
    changes it.
    """

    def __init__(
        self,
        signatures: Mapping[str, Signature],
        *,
        internal: Mapping[str, Signature] = MappingProxyType({}),
    ) -> None:
        # A dictionary, since every request looks its signature up.
        super().__init__(signatures)
        self._internal = internal
        self._joints: dict[str, Signature] = {}

    def listed(self) -> dict[str, Signature]:
        """What the metadata tells of, by name."""
        return dict(sorted({**self, **self._internal}.items()))

    def join(self, names: Iterable[str]) -> str:
        """The name under which one run answers for all of these, with `joint_alias` for aliases."""
        return json.dumps(list(names))

    def resolve(self, name: str) -> Signature:
        """A signature of the model, or the joint one that `join` named."""
        found = self.get(name) or self._joints.get(name)
        if found is None:
            found = self._make_joint(json.loads(name))
            if len(self._joints) < _MAX_JOINTS:
                self._joints[name] = found
        return found

    def _make_joint(self, names: list[str]) -> Signature:
        return Signature(
            {
                joint_alias(name, alias=alias): spec
                for name in names
                for alias, spec in self[name].inputs.items()
            },
            {
                joint_alias(name, alias=alias): spec
                for name in names
                for alias, spec in self[name].outputs.items()
            },
        )


def joint_alias(signature_name: str, *, alias: str) -> str:
    """What an alias of one signature is called in a run of several."""
    return f"{signature_name}/{alias}"


def _given(aliases: Iterable[str]) -> str:
    """As `_names`, of a request, which may have any number of any length."""
    names = sorted(aliases)
    rest = ["..."] if len(names) > _MAX_GIVEN else []
    return "{" + ",".join([*map(shorten, names[:_MAX_GIVEN]), *rest]) + "}"


def _names(aliases: Iterable[str]) -> str:
    return "{" + ",".join(sorted(aliases)) + "}"
