"""The trace context in the headers of a request; see https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

from schedo.protocol.fields import is_traceparent
from schedo.trace_context import NO_TRACE, TraceContext
from schedo.web.http import Request

_VERSION_0_CHARACTERS = 55
_TRACESTATE_CHARACTERS_MAX = 512


def read_trace(request: Request) -> TraceContext:
    """Return the trace context; a malformed one is ignored, as W3C requires."""
    value = request.find_header(b"traceparent")
    if value is None:
        return NO_TRACE
    first = value[:_VERSION_0_CHARACTERS]
    if not is_traceparent(first):
        return NO_TRACE
    if value != first and (value.startswith("00") or value[_VERSION_0_CHARACTERS] != "-"):
        return NO_TRACE
    # A later version begins like version 0, and may be followed by more.
    tracestate = request.find_header(b"tracestate")
    return TraceContext(f"00{first[2:]}", tracestate if _is_tracestate(tracestate) else None)


def _is_tracestate(value: str | None) -> bool:
    if not value or len(value) > _TRACESTATE_CHARACTERS_MAX:
        return False
    return value.isascii() and value.isprintable()
