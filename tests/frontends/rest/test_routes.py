import pytest

from aspira.contracts.errors import InvalidArgument
from aspira.contracts.identity import MAX_VERSION, ModelName, ModelSpec, Version, VersionLabel
from aspira.frontends.rest.routes import Route, find_recording, find_route, is_api_path, is_listing


def spec(name: str, *, version: int | None = None, label: str | None = None) -> ModelSpec:
    return ModelSpec(
        ModelName(name),
        version=None if version is None else Version(version),
        label=None if label is None else VersionLabel(label),
    )


@pytest.mark.parametrize("verb", ["predict", "classify", "regress"])
@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("m", spec("m")),
        ("m/versions/12", spec("m", version=12)),
        ("m/versions/0", spec("m", version=0)),
        ("m/labels/stable", spec("m", label="stable")),
    ],
)
def test_inference(place: str, wanted: ModelSpec, verb: str) -> None:
    assert find_route("POST", path=f"/v1/models/{place}:{verb}") == Route(verb, wanted)


@pytest.mark.parametrize(("ending", "verb"), [("", "status"), ("/metadata", "metadata")])
@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ("m", spec("m")),
        ("m/versions/12", spec("m", version=12)),
        ("m/labels/stable", spec("m", label="stable")),
    ],
)
def test_questions(place: str, wanted: ModelSpec, ending: str, verb: str) -> None:
    assert find_route("GET", path=f"/v1/models/{place}{ending}") == Route(verb, wanted)


@pytest.mark.parametrize(
    ("method", "path", "verb", "name"),
    [
        ("POST", "/V1/MODELS/Half:Predict", "predict", "Half"),
        ("POST", "/v1/Models/half:REGRESS", "regress", "half"),
        ("GET", "/v1/models/HALF/METADATA", "metadata", "HALF"),
    ],
)
def test_only_names_are_case_sensitive(method: str, path: str, verb: str, name: str) -> None:
    assert find_route(method, path=path) == Route(verb, spec(name))


def test_words_between_names_are_not_case_sensitive() -> None:
    versioned = find_route("GET", path="/v1/models/m/VERSIONS/3")
    labelled = find_route("GET", path="/v1/models/m/Labels/Canary")
    assert versioned == Route("status", spec("m", version=3))
    assert labelled == Route("status", spec("m", label="Canary"))


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        ("a%2Fb", "a/b"),
        ("a%3Ab", "a:b"),
        ("a+b", "a+b"),
        ("a%20b", "a b"),
        ("caf%C3%A9", "caf\u00e9"),
        ("caf\u00e9", "caf\u00e9"),
        ("100%", "100%"),
        ("a%252Fb", "a%2Fb"),
        ("versions", "versions"),
        ("metadata", "metadata"),
        ("m.1-2_3~", "m.1-2_3~"),
    ],
)
def test_names_and_labels_are_percent_decoded(encoded: str, name: str) -> None:
    assert find_route("GET", path=f"/v1/models/{encoded}") == Route("status", spec(name))
    path = f"/v1/models/m/labels/{encoded}:predict"
    assert find_route("POST", path=path) == Route("predict", spec("m", label=name))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models/m"),
        ("POST", "/v1/models/m:explain"),
        ("POST", "/v1/models/m/versions/1/labels/stable:predict"),
        ("POST", "/v1/models/m/versions/:predict"),
        ("POST", "/v1/models/m/versions/-1:predict"),
        ("POST", "/v1/models/m/versions/one:predict"),
        ("POST", "/v1/models/m/versions/\u0661:predict"),
        ("POST", "/v1/models/m/labels/:predict"),
        ("POST", "/v1/models/m/labels/a:b:predict"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/a/b:predict"),
        ("POST", "/v1/models/m:predict/x"),
        ("POST", "/v1/models/m/metadata"),
        ("GET", "/v1/models/m:predict"),
        ("GET", "/v1/models/m/other"),
        ("GET", "/v1/models/m/versions"),
        ("GET", "/v1/models/m/metadata/versions/1"),
        ("GET", "/v1/models/m//"),
        ("GET", "/v1/model/m"),
        ("GET", "/v1/"),
        ("GET", "/v2/models/m"),
        ("GET", "/x/v1/models/m"),
        ("PUT", "/v1/models/m"),
        ("HEAD", "/v1/models/m:predict"),
        ("DELETE", "/v1/models/m"),
        ("PATCH", "/v1/models/m:predict"),
        ("get", "/v1/models/m"),
    ],
)
def test_everything_else_has_no_route(method: str, path: str) -> None:
    assert find_route(method, path=path) is None


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", "/v1/models/m:predict/", Route("predict", spec("m"))),
        ("GET", "/v1/models/m/", Route("status", spec("m"))),
        ("HEAD", "/v1/models/m", Route("status", spec("m"))),
        ("HEAD", "/v1/models/m/metadata", Route("metadata", spec("m"))),
        ("GET", "/v1/models/m/metadata/", Route("metadata", spec("m"))),
    ],
)
def test_one_slash_at_the_end_does_no_harm(method: str, path: str, route: Route) -> None:
    assert find_route(method, path=path) == route


@pytest.mark.parametrize(
    "path",
    ["/v1/models", "/v1/models/", "/v1/models/versions/1", "/v1/models/labels/x/metadata"],
)
def test_a_question_without_a_name_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        find_route("GET", path=path)
    assert caught.value.message == "Missing model name in request."


@pytest.mark.parametrize(
    ("digits", "version"),
    [
        (str(MAX_VERSION), MAX_VERSION),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        ("0" * 5000, 0),
    ],
    ids=["largest", "zeros", "many zeros", "only zeros"],
)
def test_versions_may_be_as_large_as_an_int64(digits: str, version: int) -> None:
    route = find_route("GET", path=f"/v1/models/m/versions/{digits}")
    assert route == Route("status", spec("m", version=version))


@pytest.mark.parametrize("digits", [str(MAX_VERSION + 1), "9" * 20])
def test_larger_versions_are_refused(digits: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        find_route("POST", path=f"/v1/models/m/versions/{digits}:predict")
    assert caught.value.message == f"Failed to convert version: {digits} to numeric."


def test_an_endless_version_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidArgument) as caught:
        find_route("GET", path=f"/v1/models/m/versions/{'9' * 100_000}")
    assert caught.value.message == f"Failed to convert version: {'9' * 64} to numeric."


@pytest.mark.parametrize("path", ["/v1/", "/V1/anything", "/v1//"])
def test_api_paths(path: str) -> None:
    assert is_api_path(path)


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v11/", "/v2/", "v1/models", "//v1/models"])
def test_other_paths(path: str) -> None:
    assert not is_api_path(path)


@pytest.mark.parametrize(
    ("method", "path", "is_it"),
    [
        ("GET", "/v1/models", True),
        ("GET", "/V1/Models/", True),
        ("POST", "/v1/models", False),
        ("GET", "/v1/models/m", False),
        ("GET", "/v1/models//", False),
        ("GET", "/v2/models", False),
    ],
)
def test_a_listing_is_asked_for_by_the_bare_path(method: str, path: str, is_it: bool) -> None:
    assert is_listing(method, path=path) is is_it


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("/v1/models/m:record_warmup", ModelSpec(ModelName("m"))),
        ("/v1/models/a%2Fb/versions/3:record_warmup", ModelSpec(ModelName("a/b"), Version(3))),
        (
            "/v1/models/m/labels/x:record_warmup",
            ModelSpec(ModelName("m"), label=VersionLabel("x")),
        ),
        ("/v1/models/m:predict", None),
        ("/v1/models:record_warmup", None),
    ],
)
def test_a_recording_names_a_model_as_a_prediction_does(path: str, spec: ModelSpec | None) -> None:
    assert find_recording(path) == spec
    assert find_route("POST", path=path) is None or spec is None
