from __future__ import annotations

import re
import threading

import pytest

from tlog.errors import MalformedError
from tlog.metrics import MAX_SERIES, OTHER, Metrics

LINE = re.compile(
    r"# (HELP|TYPE) [a-z0-9_]+ .+|[a-z0-9_]+(\{[a-z0-9_]+=\"[^\"\\]*(\\.[^\"\\]*)*\"(,[a-z0-9_]+=\"[^\"]*\")*\})? "
    r"(\+Inf|-?[0-9.e+-]+)"
)


def samples(metrics: Metrics) -> dict[str, str]:
    text = metrics.text()
    assert text.endswith("\n") or not text
    assert all(LINE.fullmatch(line) for line in text.splitlines())
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_counts_by_label() -> None:
    metrics = Metrics()
    counter = metrics.counter("asked_total", "Questions.", ("who", "how"))
    counter.add("a", "well")
    counter.add("a", "well", by=2)
    counter.add("b", "badly")
    assert counter.value("a", "well") == 3
    assert samples(metrics) == {
        'asked_total{who="a",how="well"}': "3",
        'asked_total{who="b",how="badly"}': "1",
    }
    assert metrics.text().startswith("# HELP asked_total Questions.\n# TYPE asked_total counter\n")


def test_a_counter_is_zero_and_a_gauge_is_absent_before_its_first_value() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "A.")
    gauge = metrics.gauge("b", "B.")
    assert samples(metrics) == {"a_total": "0"}
    gauge.set(1.5)
    assert samples(metrics) == {"a_total": "0", "b": "1.5"}


def test_buckets_are_cumulative_and_bounds_belong_below() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("t_seconds", "T.", ("x",), (0.1, 1.0))
    for seconds in (0.1, 0.5, 7.0):
        histogram.observe(seconds, "y")
    assert samples(metrics) == {
        't_seconds_bucket{x="y",le="0.1"}': "1",
        't_seconds_bucket{x="y",le="1"}': "2",
        't_seconds_bucket{x="y",le="+Inf"}': "3",
        't_seconds_sum{x="y"}': "7.6",
        't_seconds_count{x="y"}': "3",
    }


def test_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.counter("a_total", "A\nB\\", ("x",)).add('q"u\no\\te')
    assert 'a_total{x="q\\"u\\no\\\\te"} 1\n' in metrics.text()
    assert "# HELP a_total A\\nB\\\\\n" in metrics.text()


def test_series_are_bounded() -> None:
    metrics = Metrics()
    counter = metrics.counter("a_total", "A.", ("x",))
    for n in range(MAX_SERIES + 50):
        counter.add(str(n))
    assert counter.value(OTHER) == 50
    assert len(samples(metrics)) == MAX_SERIES + 1


def test_refreshes_before_each_reading() -> None:
    metrics = Metrics()
    gauge = metrics.gauge("size", "S.")
    sizes = iter((3, 5))
    metrics.refresh_with(lambda: gauge.set(next(sizes)))
    assert [samples(metrics)["size"], samples(metrics)["size"]] == ["3", "5"]


@pytest.mark.parametrize("name", ["", "A", "a-b", "1a", "a b", "a\n"])
def test_refuses_bad_and_repeated_names(name: str) -> None:
    metrics = Metrics()
    metrics.counter("a_total", "A.")
    for bad in (name, "a_total"):
        with pytest.raises(MalformedError):
            metrics.gauge(bad, "B.")
    with pytest.raises(MalformedError):
        metrics.gauge("b", "B.", (name,))


def test_refuses_another_number_of_labels() -> None:
    counter = Metrics().counter("a_total", "A.", ("x",))
    for values in ((), ("a", "b")):
        with pytest.raises(MalformedError):
            counter.add(*values)


def test_threads_lose_no_count() -> None:
    counter = Metrics().counter("a_total", "A.", ("x",))
    threads = [
        threading.Thread(target=lambda: [counter.add("y") for _ in range(2000)] and None) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value("y") == 8000
