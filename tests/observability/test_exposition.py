from aspira.observability.exposition import encode_metric_name, render
from aspira.observability.metrics import Counter, Gauge, Histogram, exponential_bounds
from aspira.observability.model_metrics import LATENCY_BOUNDS_US


def test_a_family_without_series_prints_its_type_alone() -> None:
    assert render([Counter("/test/total", label_names=("model",))]) == (
        b"# TYPE :test:total counter\n"
    )


def test_scalars_print_integers_and_keep_empty_braces() -> None:
    counter = Counter("/test/total", label_names=())
    counter.increment((), by=3_000_000)
    gauge = Gauge("/test/now", label_names=("model", "state"))
    gauge.assign(("m", "ready"), value=1)
    assert render([counter, gauge]).decode() == (
        "# TYPE :test:now gauge\n"
        ':test:now{model="m",state="ready"} 1\n'
        "# TYPE :test:total counter\n"
        ":test:total{} 3000000\n"
    )


def test_histogram_is_cumulative_up_to_infinity() -> None:
    bounds = exponential_bounds(1.0, growth=2.0, num_bounds=10)
    histogram = Histogram("/test/path/histogram", label_names=("status",), bounds=bounds)
    for value in (2.0, 20.0, 200.0):
        histogram.observe(("good",), value=value)
    assert render([histogram]).decode() == (
        "# TYPE :test:path:histogram histogram\n"
        ':test:path:histogram_bucket{status="good",le="1"} 0\n'
        ':test:path:histogram_bucket{status="good",le="2"} 0\n'
        ':test:path:histogram_bucket{status="good",le="4"} 1\n'
        ':test:path:histogram_bucket{status="good",le="8"} 1\n'
        ':test:path:histogram_bucket{status="good",le="16"} 1\n'
        ':test:path:histogram_bucket{status="good",le="32"} 2\n'
        ':test:path:histogram_bucket{status="good",le="64"} 2\n'
        ':test:path:histogram_bucket{status="good",le="128"} 2\n'
        ':test:path:histogram_bucket{status="good",le="256"} 3\n'
        ':test:path:histogram_bucket{status="good",le="512"} 3\n'
        ':test:path:histogram_bucket{status="good",le="+Inf"} 3\n'
        ':test:path:histogram_sum{status="good"} 222\n'
        ':test:path:histogram_count{status="good"} 3\n'
    )


def test_histogram_without_labels_has_no_stray_comma() -> None:
    histogram = Histogram("/test/spread", label_names=(), bounds=(1.0,))
    histogram.observe((), value=0.5)
    assert render([histogram]).decode() == (
        "# TYPE :test:spread histogram\n"
        ':test:spread_bucket{le="1"} 1\n'
        ':test:spread_bucket{le="+Inf"} 1\n'
        ":test:spread_sum{} 0.5\n"
        ":test:spread_count{} 1\n"
    )


def test_latency_bounds_print_as_the_reference_prints_them() -> None:
    histogram = Histogram("/test/spread", label_names=(), bounds=LATENCY_BOUNDS_US)
    histogram.observe((), value=1234567.8)
    page = render([histogram]).decode()
    bounds = [line.split('"')[1] for line in page.splitlines() if "_bucket" in line]
    assert ", ".join(bounds) == (
        "10, 18, 32.4, 58.32, 104.976, 188.957, 340.122, 612.22, 1102, 1983.59, 3570.47, 6426.84, "
        "11568.3, 20823, 37481.3, 67466.4, 121440, 218591, 393464, 708235, 1.27482e+06, "
        "2.29468e+06, 4.13043e+06, 7.43477e+06, 1.33826e+07, 2.40887e+07, 4.33596e+07, "
        "7.80473e+07, 1.40485e+08, 2.52873e+08, 4.55172e+08, 8.19309e+08, 1.47476e+09, +Inf"
    )
    assert ":test:spread_sum{} 1.23457e+06\n" in page


def test_label_values_escape_quotes_backslashes_and_line_breaks() -> None:
    counter = Counter("/test/total", label_names=("name",))
    counter.increment(('"abc\\"\nforged{} 1',))
    assert render([counter]).decode() == (
        '# TYPE :test:total counter\n:test:total{name="\\"abc\\\\\\"\\nforged{} 1"} 1\n'
    )


def test_a_label_that_is_not_text_does_not_break_the_page() -> None:
    counter = Counter("/test/total", label_names=("name",))
    counter.increment(("m\udcff",))
    counter.increment(("modèle",))
    assert ':test:total{name="modèle"} 1\n:test:total{name="m?"} 1\n' in render([counter]).decode()


def test_names_are_made_valid() -> None:
    counter = Counter("0/path-total_count", label_names=("my-name+1", "2nd"))
    counter.increment(("a", "b"))
    assert render([counter]).decode() == (
        '# TYPE _0:path:total_count counter\n_0:path:total_count{my_name_1="a",_2nd="b"} 1\n'
    )
    assert encode_metric_name("/tensorflow/serving/request_count") == (
        ":tensorflow:serving:request_count"
    )


def test_an_empty_page_is_one_line_break() -> None:
    assert render([]) == b"\n"
