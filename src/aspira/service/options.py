"""How requests are understood; one field, one flag."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """One class for all APIs."""

    is_method_name_checked: bool = False
    """Ask a signature only by the API that its `method_name` is for."""

    is_every_model_awaited: bool = False
    """Start up, and end a reload, only once each model is available or has failed for good; a
    model that fails is then the failure of the start."""

    is_early_label_accepted: bool = True
    """A label of a model that is not served yet may name a version to come."""

    is_label_told_apart: bool = True
    """A status request by label tells of the version that the label is bound to."""

    is_retry_told: bool = True
    """While a load is tried again, the status of its version tells the last error."""

    is_unready_unavailable: bool = True
    """A model that is configured and not ready is UNAVAILABLE, not NOT_FOUND."""
