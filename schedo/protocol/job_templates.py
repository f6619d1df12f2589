"""A job as an application's code enqueues it, again and again with other payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from schedo.core.model import JobSpec
from schedo.protocol.jobs import JobRequest

if TYPE_CHECKING:
    from schedo.trace_context import TraceContext


class JobTemplate(NamedTuple):
    """A job without its payload: the request as the user wrote it, and the spec made from it.

    Code that sends jobs over HTTP sends the request, so no field can be lost; code that has the
    engine at hand submits the spec.
    """

    request: JobRequest
    spec: JobSpec

    def traced(self, trace: TraceContext) -> JobTemplate:
        """Return the template with this trace context, unless it has one or there is none."""
        if trace.traceparent is None or self.request.traceparent is not None:
            return self
        options = msgspec.structs.replace(self.spec.options, **trace._asdict())
        return JobTemplate(
            msgspec.structs.replace(self.request, **trace._asdict()),
            msgspec.structs.replace(self.spec, options=options),
        )

    def make_spec(self, payload: bytes) -> JobSpec:
        """Return the spec of a job with this payload."""
        return msgspec.structs.replace(self.spec, payload=payload)

    def make_request(self, payload: bytes) -> dict[str, Any]:
        """Return the request for a job with this payload, as plain JSON data."""
        return {**msgspec.to_builtins(self.request), "payload": msgspec.json.decode(payload)}
