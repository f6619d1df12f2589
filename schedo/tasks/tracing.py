"""The span of a Python handler, which continues the trace of its job.

OpenTelemetry is imported when the first job with a trace context starts. Where it is not installed,
handlers run without a span. Without a tracer provider, its API makes spans that record nothing, but
what the handler calls still continues the trace. The provider is the application's: what its
samplers and processors raise is logged, and the attempt goes on.
"""

from __future__ import annotations

import logging
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from schedo.core.ids import render_id
from schedo.core.leases import Completed, Failed, Lease, Outcome
from schedo.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


log = logging.getLogger("schedo.worker")


class _Api(NamedTuple):
    """The parts of OpenTelemetry's API."""

    context: ModuleType
    propagator: ModuleType
    trace: ModuleType
    tracer: Tracer


@cache
def _find_api() -> _Api | None:
    try:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation import tracecontext
    except ImportError:
        return None
    return _Api(context, tracecontext, trace, trace.get_tracer("schedo", __version__))


def begin_span(lease: Lease) -> Span | None:
    """Make a span the current one of the running context; None if there is none. Never raises."""
    try:
        api = _find_api()
        return None if api is None else _begin(api, lease)
    except Exception:
        log.exception("a span of task %s could not begin", lease.task)
        return None


def end_span(span: Span, outcome: Outcome) -> None:
    """End the span of a handler with the outcome of its attempt; never raises."""
    try:
        _end(span, outcome)
    except Exception:
        log.exception("a span of a task could not end")


def _begin(api: _Api, lease: Lease) -> Span:
    headers = {"traceparent": lease.options.traceparent, "tracestate": lease.options.tracestate}
    carrier = {name: value for name, value in headers.items() if value is not None}
    parent = api.propagator.TraceContextTextMapPropagator().extract(carrier)
    span = api.tracer.start_span(
        f"process {lease.task}",
        parent,
        kind=api.trace.SpanKind.CONSUMER,
        attributes={
            "messaging.system": "schedo",
            "messaging.operation.type": "process",
            "messaging.destination.name": lease.queue,
            "messaging.message.id": render_id(lease.key.job_id),
            "schedo.task": lease.task,
            "schedo.attempt": lease.key.attempt,
        },
    )
    api.context.attach(api.trace.set_span_in_context(span, parent))
    return span


def _end(span: Span, outcome: Outcome) -> None:
    from opentelemetry.trace import StatusCode

    if isinstance(outcome, Failed):
        failure = outcome.failure
        span.add_event(
            "exception",
            {
                "exception.type": failure.type,
                "exception.message": failure.message,
                "exception.stacktrace": failure.traceback or "",
            },
        )
        span.set_status(StatusCode.ERROR, failure.message)
    elif not isinstance(outcome, Completed):
        span.set_attribute("schedo.outcome", type(outcome).__name__.lower())
    span.end()
