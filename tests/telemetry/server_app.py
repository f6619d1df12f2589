"""The application of test_server.py: a handler that tells in which trace it runs."""

from __future__ import annotations

from opentelemetry import trace

from schedo import Schedo, current_job
from tests.telemetry.spans import as_traceparent, span_memory

app = Schedo()
memory = span_memory()


@app.task
async def tell() -> list[str | None]:
    job, span = current_job(), trace.get_current_span()
    return [job.traceparent, as_traceparent(span.get_span_context())]
