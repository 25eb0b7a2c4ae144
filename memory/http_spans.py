"""OpenTelemetry spans of requests: which resource, which status, which error code. Nothing that anybody wrote.

A span has the route and never the path, no header, no query and no message of an error. Where no SDK is set up, as by
default, it costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

NAME: Final = "muniment.http"
_CONTEXT: Final = TraceContextTextMapPropagator()


class RequestSpan:
    """The span of one request, told what came of it."""

    def __init__(self, span: Any) -> None:
        self._span = span

    def answered(self, status: int, code: str | None) -> None:
        """Notes the status, and the error code if it is one."""
        self._span.set_attribute("http.response.status_code", status)
        if code is not None:
            self._span.set_attribute("error.type", code)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))


def tracer_of_process() -> Tracer:
    """The tracer of whatever SDK the process has set up."""
    return get_tracer(NAME)


@contextmanager
def request_span(
    tracer: Tracer, method: str, route: str, headers: Mapping[str, str]
) -> Iterator[RequestSpan]:
    """A span for one request, below that of the caller if its headers name one (W3C Trace Context)."""
    span = tracer.start_span(
        f"{method} {route}",
        context=_CONTEXT.extract({"traceparent": headers.get("traceparent", "")}),
        kind=SpanKind.SERVER,
        attributes={"http.request.method": method, "http.route": route},
        record_exception=False,
        set_status_on_exception=False,
    )
    try:
        yield RequestSpan(span)
    finally:
        span.end()
