"""Work that runs right now: invocations, reservations, and the short forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schedo.core import limits
from schedo.core.dry_runs import DryRun
from schedo.core.model import ONCE, Job, JobSpec, Options
from schedo.core.requirements import Requirements
from schedo.core.states import State
from schedo.core.worker_messages import Reservation
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, Id, Instant, Name, or_unset
from schedo.protocol.jobs import JobResponse, job_fields
from schedo.protocol.keep import read_keep
from schedo.protocol.options import TaskFields, read_meta, read_tags
from schedo.protocol.query import WAIT_US_MAX
from schedo.protocol.requirements import (
    Preferences,
    RequiresRequest,
    read_conditions,
    read_requirements,
)
from schedo.protocol.times import render_duration, render_instant
from schedo.protocol.why import WorkerReasonResponse

if TYPE_CHECKING:
    from schedo.trace_context import TraceContext

COUNT_MAX = 1_000
TTL_US_MAX = 5 * limits.MINUTE
Count = Annotated[int, Meta(ge=1, le=COUNT_MAX, description="How many, all or none.")]
OnLoss = Literal["fail", "retry_once"]


class InvocationFields(TaskFields, kw_only=True):
    """The job of an invocation, and how long the caller waits for its end."""

    wait: Annotated[
        Duration,
        Meta(description="How long to wait for the end; 0: until a worker accepted it."),
    ] = "30s"
    on_loss: OnLoss = "fail"

    def read_wait(self) -> float:
        """Return how long the caller waits for the end, in seconds."""
        return _read_at_most("/wait", self.wait, 0, WAIT_US_MAX) / limits.SECOND

    def make_spec(self, trace: TraceContext, requirements: Requirements | None = None) -> JobSpec:
        """Return the spec of a job without retries; only `on_loss` can run it a second time."""
        return JobSpec(
            task=fields.read_name("/task", self.task),
            payload=fields.read_payload(self.payload),
            queue=fields.read_name("/queue", self.queue),
            options=Options(
                retry=ONCE,
                timeout_us=fields.read_duration_or_none(
                    "/timeout", self.timeout, limits.MILLISECOND
                ),
                at_most_once=self.on_loss == "fail",
                tags=read_tags(self.tags),
                meta=read_meta(self.meta),
                keep=read_keep("/keep", self.keep),
                traceparent=trace.traceparent,
                tracestate=trace.tracestate,
                requirements=requirements,
            ),
        )


class InvokeRequest(InvocationFields, kw_only=True):
    """A job that a worker accepts now, or that fails; it never waits in a queue."""

    requires: RequiresRequest | None = None
    prefer: Preferences | None = None
    count: Count = 1
    dry_run: bool = False

    def to_spec(self, trace: TraceContext) -> JobSpec:
        return self.make_spec(trace, read_requirements(self.requires, self.prefer))


class CommitRequest(InvocationFields, kw_only=True):
    """The job that runs on the reserved slots."""


class ReserveRequest(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Slots to reserve for a short time."""

    task: Name | None = None
    queue: Name = limits.DEFAULT_QUEUE
    requires: RequiresRequest | None = None
    prefer: Preferences | None = None
    count: Count = 1
    ttl: Duration = "10s"

    def read_task(self) -> str | None:
        """Return the task that will run on the slots; None if it is not known yet."""
        return None if self.task is None else fields.read_name("/task", self.task)

    def read_queue(self) -> str:
        return fields.read_name("/queue", self.queue)

    def read_requirements(self) -> Requirements | None:
        return read_requirements(self.requires, self.prefer)

    def read_ttl(self) -> float:
        """Return how long the slots stay reserved, in seconds."""
        ttl_us = _read_at_most("/ttl", self.ttl, limits.MILLISECOND, TTL_US_MAX)
        return ttl_us / limits.SECOND


class ShortRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The short form: a command to run after some seconds, or a Task to run right now."""

    command: Annotated[str, Meta(min_length=1)] | None = None
    delay_seconds: Annotated[int | float, Meta(description="At least 0.")] = 0
    task: Name | None = msgspec.field(default=None, name="Task")
    requirements: (
        Annotated[
            dict[str, Any],
            Meta(description="As requires.labels, but names in any case."),
        ]
        | None
    ) = msgspec.field(default=None, name="Requirements")
    payload: Raw | UnsetType = msgspec.field(default=UNSET, name="Payload")

    def check(self) -> None:
        """Refuse a request that has neither or both of command and Task."""
        if self.command is not None and self.task is not None:
            raise fields.not_both("command", "Task")
        if self.command is None and self.task is None:
            raise Invalid.field("/command", "this field is required, unless there is a Task")
        is_command = self.command is not None
        for name, is_given, belongs in (
            ("delay_seconds", self.delay_seconds != 0, is_command),
            ("Requirements", self.requirements is not None, not is_command),
            ("Payload", self.payload is not UNSET, not is_command),
        ):
            if is_given and not belongs:
                raise Invalid.field(f"/{name}", "this cannot be combined with the other fields")

    def to_spec(self) -> JobSpec:
        """Return the shell job of a command."""
        return JobSpec(
            task="shell",
            payload=orjson.dumps({"command": self.command}),
            delay_us=fields.read_duration("/delay_seconds", self.delay_seconds),
        )

    def to_invocation(self, trace: TraceContext) -> JobSpec:
        """Return the invocation of a Task."""
        conditions = read_conditions("/Requirements", self.requirements or {})
        return JobSpec(
            task=fields.read_name("/Task", self.task or ""),
            payload=fields.read_payload(self.payload, "/Payload"),
            options=Options(
                retry=ONCE,
                at_most_once=True,
                traceparent=trace.traceparent,
                tracestate=trace.tracestate,
                requirements=Requirements(labels=conditions) if conditions else None,
            ),
        )


class ReservationResponse(Struct, forbid_unknown_fields=True):
    """Reserved slots; a request with the nonce uses them."""

    id: str
    nonce: str
    workers: list[str]
    expires_at: Instant

    @classmethod
    def of(cls, slots: Reservation) -> Self:
        return cls(slots.id, slots.nonce, list(slots.workers), render_instant(slots.expires_at))


class InvokeDryRunResponse(Struct, forbid_unknown_fields=True):
    """Whether an invocation would start now, and what at most 64 workers say.

    `able` of the `considered` workers have room for one job. `refusal` is the error that the
    invocation would end with, by its code.
    """

    would_start: bool
    text: str
    able: int
    considered: int
    workers: list[WorkerReasonResponse]
    has_more_workers: bool
    refusal: str | UnsetType = UNSET

    @classmethod
    def of(cls, found: DryRun) -> Self:
        said, refusal = [], found.refusal
        if found.considered:
            said.append(describe_room(found.able, found.considered))
        if refusal is not None:
            said.append(str(refusal))
        return cls(
            refusal is None,
            "; ".join(said),
            found.able,
            found.considered,
            [WorkerReasonResponse.of(each) for each in found.workers],
            found.has_more_workers,
            UNSET if refusal is None else refusal.code,
        )


def describe_room(able: int, considered: int) -> str:
    """Return how many workers have room for a job of an invocation."""
    return f"{able} of {considered} workers could take it now"


class JobsResponse(Struct, forbid_unknown_fields=True):
    """The jobs of an invocation with a count above 1."""

    items: list[JobResponse]


class ShortResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A command's state in the short form."""

    task_id: Id
    status: State
    command: str | UnsetType = UNSET
    scheduled_at: Instant
    picked_at: Instant | UnsetType = UNSET
    started_at: Instant | UnsetType = UNSET
    completed_at: Instant | UnsetType = UNSET
    failed_at: Instant | UnsetType = UNSET
    cancelled_at: Instant | UnsetType = UNSET
    expired_at: Instant | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    error: str | UnsetType = UNSET

    @classmethod
    def of(cls, job: Job) -> Self:
        fields = job_fields(job)
        shown = {name: fields[name] for name in _SHORT_INSTANTS if name in fields}
        payload = _decode(_PAYLOADS, job.payload) or _Payload()
        result = _decode(_RESULTS, job.result) or _Result()
        failure = job.failure
        exit_code = result.exit_code
        if failure is not None and failure.exit_code is not None:
            exit_code = failure.exit_code
        return cls(
            task_id=fields["id"],
            status=fields["state"],
            command=or_unset(payload.command),
            exit_code=or_unset(exit_code),
            error=UNSET if failure is None else failure.message,
            **shown,
        )


class _Payload(Struct):
    command: str | None = None


class _Result(Struct):
    exit_code: int | None = None


_PAYLOADS, _RESULTS = msgspec.json.Decoder(_Payload), msgspec.json.Decoder(_Result)
_SHORT_INSTANTS = [name for name in ShortResponse.__struct_fields__ if name.endswith("_at")]
T = TypeVar("T", bound=Struct)


def _decode(decoder: msgspec.json.Decoder[T], text: bytes | None) -> T | None:
    """Return the few members that are shown, without decoding the others."""
    try:
        return decoder.decode(text or b"null")
    except msgspec.ValidationError:
        return None


def _read_at_most(pointer: str, value: str | int | float, least: int, most: int) -> int:
    us = fields.read_duration(pointer, value, least)
    if us > most:
        raise Invalid.field(pointer, f"this must be at most {render_duration(most)}")
    return us
