"""Counters, gauges and histograms of one process, and their text for Prometheus (exposition format 0.0.4).

A metric is read by whoever runs the machine, so no label may say anything about anybody: methods, statuses,
names of witnesses from the public policy. The series of one metric are bounded; what is beyond the bound is
counted together under the label value `other`.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tlog.errors import MalformedError

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES: Final = 256
OTHER: Final = "other"
# From a millisecond to half a minute, as HTTP requests and cosignatures take.
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

Labels = tuple[str, ...]


class Counter:
    """A number for each set of label values that only grows."""

    kind = "counter"

    def __init__(self, name: str, help_text: str, labels: Labels) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self._series: dict[Labels, float] = {}
        self._mutex = threading.Lock()

    def add(self, *values: str, by: float = 1.0) -> None:
        """Adds to the series with these label values, in the order of the labels."""
        with self._mutex:
            key = _key(self._series, self.labels, values)
            self._series[key] = self._series.get(key, 0.0) + by

    def value(self, *values: str) -> float:
        """What the series stands at."""
        return self._series.get(values, 0.0)

    def lines(self) -> Iterator[str]:
        """The samples as text."""
        with self._mutex:
            series = sorted(self._series.items())
        # Without labels there is one series, known from the start: an absent counter is not a zero.
        for key, number in series or ([((), 0.0)] if not self.labels else []):
            yield f"{self.name}{_format_labels(self.labels, key)} {_format_number(number)}"


class Gauge(Counter):
    """A number for each set of label values that goes up and down; it is absent until it is set."""

    kind = "gauge"

    def set(self, number: float, *values: str) -> None:
        """Sets the series with these label values."""
        with self._mutex:
            self._series[_key(self._series, self.labels, values)] = number

    def lines(self) -> Iterator[str]:
        """The samples as text."""
        return super().lines() if self._series else iter(())


class Histogram:
    """How long something took, for each set of label values."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, labels: Labels, bounds: Sequence[float]) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self._bounds = tuple(bounds)
        self._series: dict[Labels, list[float]] = {}  # one count for each bound, one beyond, the sum
        self._mutex = threading.Lock()

    def observe(self, number: float, *values: str) -> None:
        """Adds one observation to the series with these label values."""
        with self._mutex:
            key = _key(self._series, self.labels, values)
            cells = self._series.setdefault(key, [0.0] * (len(self._bounds) + 2))
            cells[bisect_left(self._bounds, number)] += 1
            cells[-1] += number

    def lines(self) -> Iterator[str]:
        """The samples as text: cumulative buckets, sum and count."""
        with self._mutex:
            series = sorted((key, list(cells)) for key, cells in self._series.items())
        names = (*self.labels, "le")
        for key, cells in series:
            count = 0.0
            for bound, cell in zip((*self._bounds, float("inf")), cells, strict=False):
                count += cell
                labels = _format_labels(names, (*key, _format_number(bound)))
                yield f"{self.name}_bucket{labels} {_format_number(count)}"
            own = _format_labels(self.labels, key)
            yield f"{self.name}_sum{own} {_format_number(cells[-1])}"
            yield f"{self.name}_count{own} {_format_number(count)}"


class Metrics:
    """All metrics of a process. Any thread may add to them while another reads the text."""

    def __init__(self) -> None:
        self._families: dict[str, Counter | Histogram] = {}
        self._refreshers: list[Callable[[], None]] = []

    def counter(self, name: str, help_text: str, labels: Labels = ()) -> Counter:
        """A new counter; its name ends in `_total`."""
        counter = Counter(name, help_text, labels)
        self._add(counter)
        return counter

    def gauge(self, name: str, help_text: str, labels: Labels = ()) -> Gauge:
        """A new gauge."""
        gauge = Gauge(name, help_text, labels)
        self._add(gauge)
        return gauge

    def histogram(
        self, name: str, help_text: str, labels: Labels = (), bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        """A new histogram; its name ends in the unit, such as `_seconds`."""
        histogram = Histogram(name, help_text, labels, bounds)
        self._add(histogram)
        return histogram

    def refresh_with(self, refresh: Callable[[], None]) -> None:
        """Has `refresh` called before each reading, to set gauges that nobody else keeps up to date."""
        self._refreshers.append(refresh)

    def text(self) -> str:
        """All metrics as Prometheus reads them."""
        for refresh in self._refreshers:
            refresh()
        return "".join(f"{line}\n" for family in self._families.values() for line in _family_lines(family))

    def _add(self, family: Counter | Histogram) -> None:
        if family.name in self._families or not all(map(_NAME.fullmatch, (family.name, *family.labels))):
            raise MalformedError("metrics: expected a new name of lower-case letters, digits and underscores")
        self._families[family.name] = family


def _family_lines(family: Counter | Histogram) -> Iterator[str]:
    samples = list(family.lines())
    if samples:
        yield f"# HELP {family.name} {_escape(family.help_text)}"
        yield f"# TYPE {family.name} {family.kind}"
        yield from samples


def _key(series: dict[Labels, float] | dict[Labels, list[float]], labels: Labels, values: Labels) -> Labels:
    if len(values) != len(labels):
        raise MalformedError(f"metrics: expected {len(labels)} label values")
    return values if values in series or len(series) < MAX_SERIES else (OTHER,) * len(labels)


def _format_labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = (
        '{}="{}"'.format(name, _escape(value).replace('"', '\\"'))
        for name, value in zip(names, values, strict=True)
    )
    return "{" + ",".join(pairs) + "}" if names else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _format_number(number: float) -> str:
    if number == float("inf"):
        return "+Inf"
    return str(int(number)) if number == int(number) else repr(number)
