"""Classify, Regress and MultiInference: one run of a signature, its outputs read as a result.

Any signature with the right keys will do, whatever its `method_name`, unless the server checks
that. Texts and the order of checks are TensorFlow Serving's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from aspira.contracts.clock import Clock
from aspira.contracts.errors import InvalidArgument, Unimplemented, shorten
from aspira.contracts.examples import (
    CLASSES_OUTPUT,
    CLASSIFICATION_OUTPUTS,
    REGRESSION_OUTPUTS,
    SCORES_OUTPUT,
    VALUES_OUTPUT,
    Classifications,
    ExamplesRequest,
    ExamplesResponse,
    ExamplesResult,
    InferenceTask,
    MultiInferenceRequest,
    Regressions,
    check_examples,
)
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME
from aspira.contracts.signatures import (
    CLASSIFY_METHOD,
    REGRESS_METHOD,
    Signature,
    SignatureTable,
    joint_alias,
)
from aspira.contracts.tensors import DataType, Tensor, Tensors, data_type_of
from aspira.service.inference import InferenceService, ServableLease
from aspira.wire.prediction_log import LoggedRequest, LogKind
from aspira.wire.signature_def import describe_signature

_INPUTS = "inputs"
_MATRIX_RANK = 2

ResultT_co = TypeVar("ResultT_co", bound=ExamplesResult, covariant=True)


class _ReadOutputs(Protocol[ResultT_co]):
    """Makes the result for `num_examples` examples of the outputs of their run."""

    def __call__(self, outputs: Tensors, *, num_examples: int) -> ResultT_co: ...


@dataclass(frozen=True, slots=True)
class _Method(Generic[ResultT_co]):
    """How one API reads signatures and outputs.

    `choose_outputs` checks a signature and names the outputs to compute.
    """

    name: str
    noun: str
    log_kind: LogKind
    choose_outputs: Callable[[Signature], tuple[str, ...]]
    read_outputs: _ReadOutputs[ResultT_co]


@dataclass(frozen=True, slots=True)
class _Plan(Generic[ResultT_co]):
    """A signature that was found fit, and what is to be run of it."""

    signature_name: str
    method: _Method[ResultT_co]
    outputs: tuple[str, ...]


class _Question(NamedTuple):
    """Examples put to a leased version."""

    lease: ServableLease
    examples: Tensor
    deadline: float | None
    priority: int
    clock: Clock

    async def ask(self, plan: _Plan[ResultT_co]) -> ExamplesResponse[ResultT_co]:
        """The answer to one signature."""
        outputs, run_s = await self._run(
            plan.signature_name, input_aliases=(_INPUTS,), outputs=plan.outputs
        )
        return self._read(plan, outputs=outputs, run_s=run_s)

    async def ask_jointly(
        self, plans: Sequence[_Plan[ExamplesResult]], *, signatures: SignatureTable
    ) -> list[ExamplesResponse[ExamplesResult]]:
        """The answers to several signatures, in one run that feeds each the same examples."""
        names = [plan.signature_name for plan in plans]
        aliases = {
            (plan.signature_name, alias): joint_alias(plan.signature_name, alias=alias)
            for plan in plans
            for alias in plan.outputs
        }
        joint_outputs, run_s = await self._run(
            signatures.join(names),
            input_aliases=[joint_alias(name, alias=_INPUTS) for name in names],
            outputs=tuple(aliases.values()),
        )
        return [
            self._read(
                plan,
                outputs={a: joint_outputs[aliases[plan.signature_name, a]] for a in plan.outputs},
                run_s=run_s,
            )
            for plan in plans
        ]

    async def _run(
        self, signature_name: str, *, input_aliases: Iterable[str], outputs: tuple[str, ...]
    ) -> tuple[Tensors, float]:
        check_examples(self.examples)
        started_s = self.clock.now()
        result = await self.lease.servable.run(
            signature_name,
            inputs=dict.fromkeys(input_aliases, self.examples),
            outputs=outputs,
            deadline=self.deadline,
            priority=self.priority,
        )
        return result, self.clock.now() - started_s

    def _read(
        self, plan: _Plan[ResultT_co], *, outputs: Tensors, run_s: float
    ) -> ExamplesResponse[ResultT_co]:
        result = plan.method.read_outputs(outputs, num_examples=len(self.examples))
        return ExamplesResponse(result, self.lease.servable_id, plan.signature_name, run_s)


async def classify(
    inference: InferenceService, *, request: ExamplesRequest
) -> ExamplesResponse[Classifications]:
    """The classes of each example.

    Raises:
        ServingError: no such model, version or signature; a signature or outputs that are no
            classification; no examples; the deadline; the runtime's own error.
    """
    return await _infer(inference, request=request, method=_CLASSIFICATION)


async def regress(
    inference: InferenceService, *, request: ExamplesRequest
) -> ExamplesResponse[Regressions]:
    """The value of each example.

    Raises:
        ServingError: as `classify`.
    """
    return await _infer(inference, request=request, method=_REGRESSION)


async def multi_inference(
    inference: InferenceService, *, request: MultiInferenceRequest
) -> list[ExamplesResponse[ExamplesResult]]:
    """The result of each task, in their order, all from the version that the first one names.

    It takes one run where the model's runtime can join signatures, else one for each task.

    Raises:
        ServingError: as `classify`, or the tasks do not go together. Nothing was run unless every
            task is fit to be.
    """
    tasks, examples, deadline, priority = request
    if not tasks or not tasks[0].spec.name:
        raise InvalidArgument("ModelSpec has no name specified.")
    with inference.lease(tasks[0].spec) as lease:
        is_name_checked = inference.is_method_name_checked
        plans = list(_plan_tasks(tasks, lease=lease, is_name_checked=is_name_checked))
        question = _Question(lease, examples, deadline, priority, inference.clock)
        signatures = lease.servable.signatures
        if len(plans) > 1 and isinstance(signatures, SignatureTable):
            responses = await question.ask_jointly(plans, signatures=signatures)
        else:
            responses = [await question.ask(plan) for plan in plans]
        _record(inference, kind=LogKind.MULTI_INFERENCE, request=request, lease=lease)
        return responses


async def _infer(
    inference: InferenceService, *, request: ExamplesRequest, method: _Method[ResultT_co]
) -> ExamplesResponse[ResultT_co]:
    spec, examples, deadline, priority = request
    name = spec.signature_name or DEFAULT_SIGNATURE_NAME
    with inference.lease(spec) as lease:
        signature = lease.servable.signatures.get(name)
        if signature is None:
            advice = lease.servable.signature_advice
            raise InvalidArgument(f"No signature was found with the name: {shorten(name)}{advice}")
        is_name_checked = inference.is_method_name_checked
        outputs = _choose_outputs(signature, method=method, is_name_checked=is_name_checked)
        plan = _Plan(name, method, outputs)
        response = await _Question(lease, examples, deadline, priority, inference.clock).ask(plan)
        _record(inference, kind=method.log_kind, request=request, lease=lease)
        return response


def _record(
    inference: InferenceService, *, kind: LogKind, request: LoggedRequest, lease: ServableLease
) -> None:
    if inference.recorder is not None:
        inference.recorder.offer(kind, request=request, servable_id=lease.servable_id)


def _plan_tasks(
    tasks: tuple[InferenceTask, ...], *, lease: ServableLease, is_name_checked: bool
) -> Iterator[_Plan[ExamplesResult]]:
    seen: set[str] = set()
    for spec, method_name in tasks:
        if not spec.name:
            raise InvalidArgument("Found ModelSpec with an empty model name.")
        if spec.name != tasks[0].spec.name:
            raise InvalidArgument(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        name = spec.signature_name or DEFAULT_SIGNATURE_NAME
        if name in seen:
            raise InvalidArgument(f"Duplicate evaluation of signature: {shorten(name)}")
        seen.add(name)
        signature = lease.servable.signatures.get(name)
        if signature is None:
            advice = lease.servable.signature_advice
            raise InvalidArgument(
                f"Requested signature not found in model graph: {shorten(name)}{advice}"
            )
        method = _METHODS.get(method_name)
        if method is None:
            raise Unimplemented(f"Unsupported signature method_name: {shorten(method_name)}")
        outputs = _choose_outputs(signature, method=method, is_name_checked=is_name_checked)
        yield _Plan(name, method, outputs)


def _choose_outputs(
    signature: Signature, *, method: _Method[ExamplesResult], is_name_checked: bool
) -> tuple[str, ...]:
    if is_name_checked and signature.method_name != method.name:
        raise InvalidArgument(
            f"Expected {method.noun} signature method_name to be {method.name}."
            f" Was: {signature.method_name}"
        )
    if len(signature.inputs) != 1:
        raise InvalidArgument("Expected one input Tensor.")
    return method.choose_outputs(signature)


def _check_input(signature: Signature, *, noun: str) -> None:
    if _INPUTS not in signature.inputs:
        raise InvalidArgument(
            f"No {noun} inputs found in SignatureDef: {describe_signature(signature)}"
        )


def _choose_classification_outputs(signature: Signature) -> tuple[str, ...]:
    num_outputs = len(signature.outputs)
    if num_outputs not in {1, 2}:
        raise InvalidArgument(f"Expected one or two output Tensors, found {num_outputs}")
    _check_input(signature, noun="classification")
    outputs = tuple(alias for alias in CLASSIFICATION_OUTPUTS if alias in signature.outputs)
    if not outputs:
        raise InvalidArgument(
            "Expected classification signature outputs to contain at least one of "
            f'"{CLASSES_OUTPUT}" or "{SCORES_OUTPUT}". '
            f"Signature was: {describe_signature(signature)}"
        )
    return outputs


def _choose_regression_outputs(signature: Signature) -> tuple[str, ...]:
    if len(signature.outputs) != 1:
        raise InvalidArgument("Expected one output Tensor.")
    _check_input(signature, noun="regression")
    if VALUES_OUTPUT not in signature.outputs:
        raise InvalidArgument(
            f"No regression outputs found in SignatureDef: {describe_signature(signature)}"
        )
    return REGRESSION_OUTPUTS


def _read_classifications(outputs: Tensors, *, num_examples: int) -> Classifications:
    labels, scores = outputs.get(CLASSES_OUTPUT), outputs.get(SCORES_OUTPUT)
    if labels is not None:
        _check_matrix(
            labels, alias=CLASSES_OUTPUT, dtype=DataType.STRING, num_examples=num_examples
        )
    if scores is not None:
        _check_matrix(scores, alias=SCORES_OUTPUT, dtype=DataType.FLOAT, num_examples=num_examples)
    if labels is not None and scores is not None and labels.shape[1] != scores.shape[1]:
        raise InvalidArgument(
            "Tensors class and score should match in dim_size(1). Got "
            f"{labels.shape[1]} vs. {scores.shape[1]}"
        )
    return Classifications(
        np.full_like(scores, b"", dtype=object) if labels is None else _as_bytes(labels),
        np.zeros_like(labels, dtype=np.float32) if scores is None else scores,
    )


def _check_matrix(tensor: Tensor, *, alias: str, dtype: DataType, num_examples: int) -> None:
    if tensor.ndim != _MATRIX_RANK:
        raise InvalidArgument(
            f"Expected Tensor shape: [batch_size num_classes] but got {_shape_text(tensor)}"
        )
    if data_type_of(tensor) is not dtype:
        raise InvalidArgument(
            f"Expected {alias} Tensor of {dtype.wire_name}. Got: {data_type_of(tensor).wire_name}"
        )
    if len(tensor) != num_examples:
        raise InvalidArgument(
            f"Expected {alias} output batch size of {num_examples}. Got: {len(tensor)}"
        )


def _read_regressions(outputs: Tensors, *, num_examples: int) -> Regressions:
    values = outputs[VALUES_OUTPUT]
    if values.ndim not in {1, _MATRIX_RANK} or values.shape[1:] not in {(), (1,)}:
        raise InvalidArgument(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{_shape_text(values)}"
        )
    if len(values) != num_examples:
        raise InvalidArgument(
            f"Input batch size did not match output batch size: {num_examples} vs. {len(values)}"
        )
    if data_type_of(values) is not DataType.FLOAT:
        raise InvalidArgument(
            f"Expected output Tensor of DT_FLOAT.  Got: {data_type_of(values).wire_name}"
        )
    return Regressions(values.reshape(-1))


def _as_bytes(labels: Tensor) -> Tensor:
    if labels.dtype.kind == "U":
        labels = np.char.encode(labels.astype(np.str_), "utf-8")
    return labels.astype(object)


def _shape_text(tensor: Tensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"


_CLASSIFICATION = _Method(
    CLASSIFY_METHOD,
    "classification",
    LogKind.CLASSIFY,
    _choose_classification_outputs,
    _read_classifications,
)
_REGRESSION = _Method(
    REGRESS_METHOD,
    "regression",
    LogKind.REGRESS,
    _choose_regression_outputs,
    _read_regressions,
)
_METHODS: MappingProxyType[str, _Method[ExamplesResult]] = MappingProxyType(
    {CLASSIFY_METHOD: _CLASSIFICATION, REGRESS_METHOD: _REGRESSION}
)
