"""Predict: choose the version, lease it, run it. One deadline from the edge to the runtime."""

from dataclasses import dataclass

from aspira.contracts.clock import Clock
from aspira.contracts.errors import FailedPrecondition, Internal, NotFound, Unavailable, shorten
from aspira.contracts.identity import DEFAULT_SIGNATURE_NAME, ModelName, ModelSpec, Version
from aspira.contracts.inference import PredictRequest, PredictResponse
from aspira.contracts.servable import Served
from aspira.contracts.signatures import (
    CLASSIFY_METHOD,
    PREDICT_METHOD,
    REGRESS_METHOD,
    Signature,
)
from aspira.lifecycle.lease import Lease
from aspira.lifecycle.manager import Manager
from aspira.routing.table import RoutingTable, choose_version
from aspira.service.options import ServiceOptions
from aspira.service.recorder import Recorder
from aspira.wire.prediction_log import LogKind

ServableManager = Manager[Served]
ServableLease = Lease[Served]

_PREDICT_METHODS = (PREDICT_METHOD, CLASSIFY_METHOD, REGRESS_METHOD)


@dataclass(slots=True)
class Router:
    """Holds the routing table in force. Replaced whole, by one assignment."""

    table: RoutingTable


class InferenceService:
    """Every prediction of every protocol. Event loop only.

    `recorder`, mostly None, is told of what was answered without error.
    """

    def __init__(
        self,
        manager: ServableManager,
        *,
        router: Router,
        clock: Clock,
        options: ServiceOptions | None = None,
    ) -> None:
        self._manager = manager
        self.clock = clock
        self._router = router
        self._options = options or ServiceOptions()
        self.recorder: Recorder | None = None

    @property
    def router(self) -> Router:
        """Says which version answers; its table is replaced with each configuration."""
        return self._router

    @property
    def is_method_name_checked(self) -> bool:
        """Whether a signature answers only the API that its `method_name` is for."""
        return self._options.is_method_name_checked

    def lease(self, spec: ModelSpec) -> ServableLease:
        """The version that answers `spec`, kept loaded until released.

        Raises:
            NotFound: there is no such model or version.
            Unavailable: the model or version is not ready, and may become so.
            InvalidArgument: an unknown label.
        """
        version = choose_version(self._router.table, spec=spec)
        try:
            return self._manager.acquire(spec.name, version=version)
        except NotFound as error:
            if self._options.is_unready_unavailable and self._may_come(spec.name, version=version):
                # The text stays: scripts that wait for a model know it.
                raise Unavailable(error.message) from None
            raise

    def _may_come(self, name: ModelName, *, version: Version | None) -> bool:
        if name not in self._router.table.models:
            return False
        return version is None or any(
            status.version == version and status.is_coming
            for status in self._manager.statuses(name)
        )

    async def predict(self, request: PredictRequest) -> PredictResponse:
        """Answer one request.

        Raises:
            ServingError: no such model, version or signature; inputs that do not fit; the
                deadline; the runtime's own error.
        """
        with self.lease(request.spec) as lease:
            return await self.predict_leased(request, lease=lease)

    async def predict_leased(
        self, request: PredictRequest, *, lease: ServableLease
    ) -> PredictResponse:
        """Answer with a version that the caller has leased; the caller releases it."""
        name = request.spec.signature_name or DEFAULT_SIGNATURE_NAME
        signature = lease.servable.signatures.get(name)
        if signature is None:
            advice = lease.servable.signature_advice
            raise FailedPrecondition(f'Serving signature key "{shorten(name)}" not found.{advice}')
        if self.is_method_name_checked:
            _check_method_name(signature)
        started_s = self.clock.now()
        outputs = await lease.servable.run(
            name,
            inputs=signature.bind_inputs(request.inputs),
            outputs=signature.choose_outputs(request.output_filter),
            deadline=request.deadline,
            priority=request.priority,
        )
        run_s = self.clock.now() - started_s
        if self.recorder is not None:
            servable_id = lease.servable_id
            self.recorder.offer(LogKind.PREDICT, request=request, servable_id=servable_id)
        return PredictResponse(outputs, lease.servable_id, name, run_s)


def _check_method_name(signature: Signature) -> None:
    if signature.method_name not in _PREDICT_METHODS:
        raise Internal(
            "Expected prediction signature method_name to be one of "
            f"{{{', '.join(_PREDICT_METHODS)}}}. Was: {signature.method_name}"
        )
