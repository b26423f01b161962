"""What `--compat=strict` means: each behaviour that is better on purpose, and its original.

Each is one setting of the package that owns it, and no package knows of this table. The page
docs/compatibility.md shows it.
"""

from dataclasses import dataclass, replace

from aspira.settings import Settings

BETTER = "better"
STRICT = "strict"


@dataclass(frozen=True, slots=True)
class Restoration:
    """One behaviour of TensorFlow Serving, decided by a yes-or-no setting, `group.field`.

    `better` is what a user sees by default, `strict` with the other answer to the setting.
    """

    setting: str
    better: str
    strict: str


RESTORATIONS: tuple[Restoration, ...] = (
    Restoration(
        "service.is_every_model_awaited",
        "Ports open once every model is available, has failed or has no version; one that is not"
        " available keeps neither the start nor a reload from ending.",
        "Ports open once every model is available. A model without a version is waited for without"
        " end, by the start and by a reload, and other reloads wait behind that. A model that"
        " fails when its tries are used up ends the start: exit status 255, `Failed to start"
        " server. Error: UNKNOWN: 1 servable(s) did not become available: ...`.",
    ),
    Restoration(
        "service.is_unready_unavailable",
        "A model that is configured and not ready is UNAVAILABLE (503), so that clients try again"
        " or elsewhere; the text is the original's.",
        "It is NOT_FOUND (404), as a model that nobody knows.",
    ),
    Restoration(
        "lifecycle.is_model_listed_alone",
        "A base path that is missing, cannot be read or does not answer concerns its model alone.",
        "While there is one, no new version of any model is found.",
    ),
    Restoration(
        "lifecycle.is_failed_version_retried",
        "A version whose tries are used up is tried again when its files change and on a reload.",
        "It is not, until it is removed and comes back, or the server is restarted.",
    ),
    Restoration(
        "lifecycle.is_rest_awaited",
        "A version directory is loaded once it is complete (see below).",
        "It is loaded as soon as it is seen, whatever is in it. `--version_ready_marker` still"
        " counts.",
    ),
    Restoration(
        "lifecycle.is_moved_version_reloaded",
        "A version that is served is loaded again when its model gets another base path; the old"
        " one serves until the new one is ready.",
        "Only numbers that are not loaded yet are loaded from the new base path.",
    ),
    Restoration(
        "service.is_early_label_accepted",
        "A label of a model that is new may name a version to come; it is bound when that is"
        " available.",
        "Such a configuration is refused, at the start and on a reload, unless"
        " `--allow_version_labels_for_unavailable_models`.",
    ),
    Restoration(
        "service.is_label_told_apart",
        "A status request by label tells of the labelled version, over REST and gRPC.",
        "It tells of all versions, whatever the label.",
    ),
    Restoration(
        "service.is_retry_told",
        "While a load is tried again, or a version is loaded from another base path in vain, its"
        " status tells the last error.",
        "Its status has no error before the last try has failed.",
    ),
    Restoration(
        "models.is_unchanged_config_applied",
        "The config file is applied when it has changed, so a reload by RPC stays in force.",
        "It is applied at each look, and undoes what a reload by RPC has set.",
    ),
    Restoration(
        "rest.is_url_lenient",
        "A query string, a slash at the end and verbs in upper case are accepted, and HEAD where"
        " GET is.",
        "The query is part of the path, and so of the model's name: 404 or 400. HEAD is 400 below"
        " `/v1/`.",
    ),
    Restoration(
        "rest.is_every_error_explained",
        "Every error has a text.",
        "A version that is no int64, and OPTIONS without Origin, are 400 with an empty body.",
    ),
    Restoration(
        "rest.is_narrow_integer_checked",
        "Integers out of range for int8, int16 and uint8 are refused.",
        "They are cut off: 300 is 44 for a uint8.",
    ),
    Restoration(
        "rest.is_extended",
        "REST has `/healthz` and `/readyz`, and `GET /v1/models` lists the models; language models "
        "are asked by OpenAI's API, and every model by the Open Inference Protocol (`/v2`).",
        "REST has the original's paths only.",
    ),
    Restoration(
        "grpc.is_extended",
        "gRPC has PredictStreamed, and the Open Inference Protocol"
        " (`inference.GRPCInferenceService`).",
        "It has the original's methods only.",
    ),
    Restoration(
        "grpc.is_health_enabled",
        "gRPC health is served.",
        "It is served with `--enable_grpc_healthcheck_service`.",
    ),
    Restoration(
        "grpc.is_health_reflected",
        "gRPC health tells of models, each by its name, and of the shutdown.",
        'The names "", `ModelService` and `PredictionService` are SERVING, always.',
    ),
    Restoration(
        "process.is_drained",
        "SIGTERM, SIGINT and SIGHUP finish the requests in flight, for `--shutdown_grace_seconds` "
        "at most.",
        "They end the server at once; its exit status is 143, 130 or 129.",
    ),
)


def restore_original(settings: Settings) -> Settings:
    """`settings` with every behaviour of the table as the original has it."""
    for restoration in RESTORATIONS:
        group, _, field = restoration.setting.partition(".")
        default = getattr(getattr(Settings(), group), field)
        options = replace(getattr(settings, group), **{field: not default})
        settings = replace(settings, **{group: options})
    return settings
