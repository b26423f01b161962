"""Metrics as text, byte for byte in the format of TensorFlow Serving's Prometheus exporter.

The rules are those of its `util/prometheus_exporter.cc`, with one difference: a line break in a
label is escaped, where the original prints it and lets a client forge or break lines.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

from aspira.observability.metrics import Family, Histogram, HistogramSeries, Labels

_NOT_IN_METRIC_NAME = re.compile(r"[^a-zA-Z0-9_]")
_NOT_IN_LABEL_NAME = re.compile(r"[^a-zA-Z0-9]")


def render(families: Iterable[Family]) -> bytes:
    """The whole page, sorted by internal name. A family without series prints its type alone."""
    lines: list[str] = []
    for family in sorted(families, key=lambda family: family.name):
        lines.append(f"# TYPE {encode_metric_name(family.name)} {family.kind}")
        lines.extend(_histogram_lines(family) if isinstance(family, Histogram) else _lines(family))
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def encode_metric_name(name: str) -> str:
    """`/tensorflow/serving/request_count` is exported as `:tensorflow:serving:request_count`."""
    return _with_valid_start(_NOT_IN_METRIC_NAME.sub(":", name))


def _lines(family: Family) -> Iterator[str]:
    name = encode_metric_name(family.name)
    for values, series in family.snapshot():
        assert not isinstance(series, HistogramSeries)
        yield f"{name}{{{_encode_labels(family.label_names, values=values)}}} {series.value}"


def _histogram_lines(family: Histogram) -> Iterator[str]:
    name = encode_metric_name(family.name)
    bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
    for values, series in family.snapshot():
        labels = _encode_labels(family.label_names, values=values)
        prefix = f"{name}_bucket{{{labels}{',' if labels else ''}"
        total = 0
        for bound, total in zip(bounds, accumulate(series.counts), strict=True):
            yield f'{prefix}le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {series.sum:g}"
        yield f"{name}_count{{{labels}}} {total}"


def _encode_labels(names: Labels, *, values: Labels) -> str:
    return ",".join(
        f'{_encode_label_name(name)}="{_encode_label_value(value)}"'
        for name, value in zip(names, values, strict=True)
    )


def _encode_label_name(name: str) -> str:
    return _with_valid_start(_NOT_IN_LABEL_NAME.sub("_", name))


def _encode_label_value(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _with_valid_start(name: str) -> str:
    return f"_{name}" if name[:1].isdigit() else name
