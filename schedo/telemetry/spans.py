"""Makes OpenTelemetry's spans of notes.

A job is one trace. The span `submit TASK` begins when the job is accepted and ends when it is on
the disk; its parent is the caller's span, or the decision of the schedule that made the job. Each
attempt is a child of it, `run TASK`, from its start to its end. The worker gets the attempt's span
as the parent of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision as Sampled
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from schedo.core.ids import render_id
from schedo.core.leases import Lease
from schedo.core.limits import SECOND
from schedo.core.model import DecisionRecord, Failure, LeaseKey, Trigger
from schedo.protocol.fields import is_traceparent
from schedo.protocol.times import render_instant
from schedo.telemetry.notes import AttemptNote, DecisionNote, JobNote, Note, SubmitNote
from schedo.telemetry.span_ids import SpanIds
from schedo.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.id_generator import IdGenerator

_NS_PER_US = 1_000
_SAMPLED, _UNSAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_BY_REQUEST = (Trigger.SUBMIT, Trigger.INVOKE)
_ERRORS = ("failed", "timeout", "lost")


class _NextIds:
    """Gives the next span the ids that were derived for it."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False


class SpanMaker:
    """Makes spans in the telemetry's thread; `mark` is for the event loop."""

    def __init__(self, resource: Resource, store_id: int = 0) -> None:
        self._ids = SpanIds(store_id)
        self._next = _NextIds()
        provider = TracerProvider(
            resource=resource,
            id_generator=cast("IdGenerator", self._next),
            shutdown_on_exit=False,
        )
        self._sampler = provider.sampler
        self._tracer = provider.get_tracer("schedo", __version__)

    def use_store(self, store_id: int) -> None:
        """Derive the ids for the jobs of this store."""
        self._ids = SpanIds(store_id)

    def mark(self, lease: Lease) -> Lease:
        """Return the lease with the span of its attempt as the parent of the worker's span."""
        options, key = lease.options, lease.key
        caller = _read_caller(options.traceparent, options.tracestate)
        trace_id = self._ids.trace(key.job_id) if caller is None else caller.trace_id
        flags = self._sample(trace_id, caller)[0]
        traceparent = f"00-{trace_id:032x}-{self._ids.attempt(key):016x}-{flags:02x}"
        return replace(lease, options=replace(options, traceparent=traceparent))

    def make(self, notes: Iterable[Note], durable_at: int) -> Iterator[ReadableSpan]:
        """Yield the spans of a commit that are sampled; durable_at: when it was on the disk."""
        for note in notes:
            if isinstance(note, SubmitNote):
                span = self._make_submit(note, durable_at)
            elif isinstance(note, AttemptNote):
                span = self._make_attempt(note)
            else:
                span = self._make_decision(note, durable_at)
            if span is not None:
                yield span

    def _make_submit(self, note: SubmitNote, durable_at: int) -> ReadableSpan | None:
        job, decision = note.job, note.decision
        if not self._submit_context(job).trace_flags.sampled:
            return None
        self._next.trace_id = self._ids.trace(job.id)
        self._next.span_id = self._ids.submit(job.id)
        parent = _read_caller(job.traceparent, job.tracestate)
        if parent is None and decision is not None:
            parent = self._decision_context(decision)
        return self._end(
            f"submit {job.task}",
            parent,
            SpanKind.SERVER if job.trigger in _BY_REQUEST else SpanKind.INTERNAL,
            {**_describe(job, "create"), "schedo.trigger": str(job.trigger)},
            (note.created_at, durable_at),
        )

    def _make_attempt(self, note: AttemptNote) -> ReadableSpan | None:
        job, record = note.job, note.record
        submit = self._submit_context(job)
        if not submit.trace_flags.sampled:
            return None
        key = LeaseKey(record.job_id, record.attempt, record.epoch)
        self._next.span_id = self._ids.attempt(key)
        began_at = record.ended_at if record.started_at is None else record.started_at
        attributes = {
            **_describe(job, "send"),
            "schedo.attempt": record.attempt,
            "schedo.outcome": record.outcome,
            "schedo.worker": record.worker or "",
        }
        if record.due_at is not None:
            attributes["schedo.lateness_s"] = max(0, began_at - record.due_at) / SECOND
        return self._end(
            f"run {job.task}",
            submit,
            SpanKind.PRODUCER,
            attributes,
            (began_at, record.ended_at),
            record.failure if record.outcome in _ERRORS else None,
        )

    def _make_decision(self, note: DecisionNote, durable_at: int) -> ReadableSpan | None:
        record = note.record
        self._next.trace_id = self._ids.decision_trace(record)
        self._next.span_id = self._ids.decision(record)
        attributes: dict[str, Any] = {
            "schedo.schedule": note.name or "",
            "schedo.decision": record.decision.value,
            "schedo.scheduled_for": render_instant(record.scheduled_for),
            "schedo.instants": record.count,
            "schedo.lateness_s": max(0, record.decided_at - record.scheduled_for) / SECOND,
        }
        if record.job_id is not None:
            attributes["messaging.message.id"] = render_id(record.job_id)
        name = f"schedule {note.name}" if note.name else "schedule"
        times = (record.decided_at, durable_at)
        return self._end(name, None, SpanKind.INTERNAL, attributes, times)

    def _end(  # what a span consists of
        self,
        name: str,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        times: tuple[int, int],
        failure: Failure | None = None,
    ) -> ReadableSpan | None:
        """Make a span that has ended; times: in microseconds. Return None if it is not sampled."""
        began_at, ended_at = times
        span = self._tracer.start_span(
            name,
            _as_context(parent),
            kind=kind,
            attributes=attributes,
            start_time=began_at * _NS_PER_US,
            set_status_on_exception=False,
        )
        if not isinstance(span, ReadableSpan):
            return None
        ended_ns = max(began_at, ended_at) * _NS_PER_US
        if failure is not None:
            exception = {
                "exception.type": failure.type,
                "exception.message": failure.message,
                "exception.stacktrace": failure.traceback or "",
            }
            span.add_event("exception", exception, ended_ns)
            span.set_status(StatusCode.ERROR, failure.message)
        span.end(ended_ns)
        return span

    def _submit_context(self, job: JobNote) -> SpanContext:
        """Return the context of the span of the job's submit, as it was when that was made."""
        caller = _read_caller(job.traceparent, job.tracestate)
        trace_id = self._ids.trace(job.id) if caller is None else caller.trace_id
        return self._make_context(trace_id, self._ids.submit(job.id), caller)

    def _decision_context(self, decision: DecisionRecord) -> SpanContext:
        trace_id = self._ids.decision_trace(decision)
        return self._make_context(trace_id, self._ids.decision(decision), None)

    def _make_context(self, trace_id: int, span_id: int, parent: SpanContext | None) -> SpanContext:
        flags, state = self._sample(trace_id, parent)
        return SpanContext(trace_id, span_id, False, flags, state)

    def _sample(
        self, trace_id: int, parent: SpanContext | None
    ) -> tuple[TraceFlags, TraceState | None]:
        """Return whether the first span of a job is sampled, as flags, and its state.

        Its parent and its trace decide that for all spans of the job.
        """
        result = self._sampler.should_sample(_as_context(parent), trace_id, "")
        is_sampled = result.decision is Sampled.RECORD_AND_SAMPLE
        return _SAMPLED if is_sampled else _UNSAMPLED, result.trace_state


def _read_caller(traceparent: str | None, tracestate: str | None) -> SpanContext | None:
    """Return the span of a job's submitter; None if the job has no valid traceparent."""
    if traceparent is None or not is_traceparent(traceparent):
        return None
    _, trace_id, span_id, flags = traceparent.split("-")
    state = TraceState.from_header([tracestate or ""])
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state)


def _as_context(span: SpanContext | None) -> Context | None:
    """Return the context of a child; None for a root."""
    return None if span is None else set_span_in_context(NonRecordingSpan(span))


def _describe(job: JobNote, operation: str) -> dict[str, Any]:
    """Return the attributes of OpenTelemetry's conventions for messages, and the task."""
    return {
        "messaging.system": "schedo",
        "messaging.operation.type": operation,
        "messaging.destination.name": job.queue,
        "messaging.message.id": render_id(job.id),
        "schedo.task": job.task,
    }
