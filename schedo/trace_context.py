"""The W3C trace context of the calling code, if it uses OpenTelemetry.

Nothing here imports OpenTelemetry: code that has not imported it has no current span.
See https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class TraceContext(NamedTuple):
    """The two headers of a trace context; tracestate only together with traceparent."""

    traceparent: str | None = None
    tracestate: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are set, by their names."""
        if self.traceparent is None:
            return {}
        return {name: value for name, value in self._asdict().items() if value is not None}


NO_TRACE = TraceContext()


def current_trace() -> TraceContext:
    """Return the context of the current span; NO_TRACE if there is none."""
    api = sys.modules.get("opentelemetry.trace")
    get_current_span = getattr(api, "get_current_span", None)  # None while it is being imported
    if get_current_span is None:
        return NO_TRACE
    context = get_current_span().get_span_context()
    if not context.is_valid:
        return NO_TRACE
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return TraceContext(traceparent, context.trace_state.to_header() or None)
