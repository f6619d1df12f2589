"""The span of a handler, in the trace of its job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from schedo import Schedo, Snooze
from schedo.client import Client
from schedo.core.leases import Completed, Outcome
from schedo.core.model import Options
from schedo.tasks.arguments import Arguments
from schedo.tasks.python import TaskRunner
from schedo.tasks.registry import TaskSpec
from schedo.tasks.threads import HandlerThreads
from tests.client.server import fake_server, job_record
from tests.telemetry.spans import as_traceparent
from tests.worker.calls import JOB, make_context, run_task

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE_ID, PARENT_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACED = Options(traceparent=TRACE, tracestate="vendor=1")
SEEN: list[trace.SpanContext] = []


def see() -> None:
    SEEN.append(trace.get_current_span().get_span_context())


async def see_later() -> None:
    see()


async def fail() -> None:
    raise ValueError("no such order")


async def snooze() -> None:
    raise Snooze("1m")


async def run(function: Callable[..., Any], options: Options) -> Outcome:
    SEEN.clear()
    task = TaskSpec("mail", function, Arguments("mail", function))
    with HandlerThreads(1) as pool:
        return (await run_task(TaskRunner(task, pool), make_context(None, "mail", options))).outcome


def only(memory: InMemorySpanExporter) -> ReadableSpan:
    (span,) = memory.get_finished_spans()
    return span


@pytest.mark.parametrize("function", [see, see_later], ids=["plain", "async"])
async def test_a_handler_runs_in_a_span_of_its_jobs_trace(
    function: Callable[..., Any], memory: InMemorySpanExporter
) -> None:
    await run(function, TRACED)

    span = only(memory)
    assert (span.name, span.kind) == ("process mail", SpanKind.CONSUMER)
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, span.parent.span_id) == (TRACE_ID, PARENT_ID)
    assert span.context.trace_state.to_header() == "vendor=1"
    assert span.attributes is not None
    assert span.attributes["messaging.message.id"] == JOB
    assert span.attributes["schedo.attempt"] == 2
    assert [span.context] == SEEN


async def test_a_handler_that_raises_ends_its_span_as_an_error(
    memory: InMemorySpanExporter,
) -> None:
    await run(fail, TRACED)

    span = only(memory)
    (event,) = span.events
    assert span.status.status_code is StatusCode.ERROR
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "ValueError"
    assert event.attributes["exception.message"] == "no such order"
    assert 'raise ValueError("no such order")' in str(event.attributes["exception.stacktrace"])


async def test_a_snoozed_attempt_is_no_error(memory: InMemorySpanExporter) -> None:
    await run(snooze, TRACED)

    span = only(memory)
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes is not None
    assert span.attributes["schedo.outcome"] == "snoozed"


@pytest.mark.parametrize("method", ["on_start", "on_end"])
async def test_a_span_that_cannot_be_made_does_not_hold_the_attempt(
    method: str, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*args: object, **options: object) -> None:
        raise ValueError("no such collector")

    monkeypatch.setattr(SimpleSpanProcessor, method, break_down)

    assert await run(see_later, TRACED) == Completed(None)
    assert len(SEEN) == 1


async def test_a_job_without_a_trace_has_no_span(memory: InMemorySpanExporter) -> None:
    await run(see_later, Options())

    assert memory.get_finished_spans() == ()
    assert not SEEN[0].is_valid


async def test_a_job_that_a_handler_enqueues_continues_its_trace(
    tmp_path: Path, memory: InMemorySpanExporter
) -> None:
    app = Schedo(tmp_path / "jobs.db", grace=0)
    second = app.task(name="second")(see_later)

    @app.task
    async def first() -> str:
        return (await second.enqueue()).id

    async with app:
        with trace.get_tracer("shop").start_as_current_span("order") as order:
            job = await first.enqueue()
            many = await second.enqueue_many([{}, {}])
        await job.result()
        for each in many:
            assert not isinstance(each, Exception)
            await each.result()
        outside = await second.enqueue()
        status = await outside.status()

    spans = {span.name: span for span in memory.get_finished_spans()}
    of_first, of_order = spans["process first"], order.get_span_context()
    assert of_first.parent is not None
    assert of_first.parent.span_id == of_order.span_id
    assert of_first.context is not None
    children = [s for s in memory.get_finished_spans() if s.name == "process second"]
    parents = {span.parent.span_id for span in children if span.parent is not None}
    assert parents == {of_first.context.span_id, of_order.span_id}
    assert "traceparent" not in status


def test_a_client_sends_the_current_span_with_each_request(memory: InMemorySpanExporter) -> None:
    with fake_server() as server, Client(server.url) as client:
        server.on("POST", "/v1/jobs", 201, job_record())
        with trace.get_tracer("shop").start_as_current_span("order") as order:
            client.submit("mail")
        client.submit("mail")

    first, second = server.requests
    assert first.headers["traceparent"] == as_traceparent(order.get_span_context())
    assert "traceparent" not in second.headers


def test_code_without_opentelemetry_never_imports_it() -> None:
    program = """
import asyncio, sys, schedo
app = schedo.Schedo(":memory:", grace=0)
@app.task
async def hello() -> int: return 1
async def main():
    async with app:
        assert await (await hello.enqueue()).result() == 1
asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("[]\n", "")


async def test_handlers_run_without_a_span_where_opentelemetry_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from schedo.tasks import tracing

    tracing._find_api.cache_clear()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    try:
        outcome = await run(fail, TRACED)
    finally:
        tracing._find_api.cache_clear()

    assert type(outcome).__name__ == "Failed"
