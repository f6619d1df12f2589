"""Requests about jobs, and their conversion to the core's JobSpec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schedo.core import limits
from schedo.core.model import PLAIN, JobSpec, Options, Retry, Unique
from schedo.core.retry import PRESETS
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration, Instant, Name, Priority, Text
from schedo.protocol.requirements import Preferences, RequiresRequest, read_route
from schedo.protocol.times import render_duration, render_instant

# read_retry checks it: there the pointer is right also inside of a task's defaults.
RetryCount = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": limits.ATTEMPTS_MAX})]
PresetName = Annotated[str, Meta(extra_json_schema={"enum": list(PRESETS)})]
TraceParent = Annotated[str, Meta(extra_json_schema={"pattern": fields.TRACEPARENT_PATTERN})]
Attempts = Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)]
_NO_OPTIONS = (None,) * 10
Delivery = Literal["at_least_once", "at_most_once"]
UnfinishedState = Literal["scheduled", "blocked", "queued", "running", "retrying"]


class RetryRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """When and how often a failed attempt is tried again."""

    max_attempts: Attempts = 5
    backoff: Literal["exponential", "fixed"] = "exponential"
    initial: Duration = "2s"
    factor: Annotated[float, Meta(ge=1, le=100)] = 3.0
    max: Duration = "1h"
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.2
    until: Instant | None = None

    @classmethod
    def of(cls, retry: Retry) -> Self:
        return cls(
            max_attempts=retry.max_attempts,
            backoff="fixed" if retry.backoff == "fixed" else "exponential",
            initial=render_duration(retry.initial_us),
            factor=retry.factor,
            max=render_duration(retry.max_us),
            jitter=retry.jitter,
            until=None if retry.until_at is None else render_instant(retry.until_at),
        )

    def to_retry(self) -> Retry:
        """Return the core's form."""
        return Retry(
            max_attempts=self.max_attempts,
            backoff=self.backoff,
            initial_us=fields.read_duration("/retry/initial", self.initial),
            factor=self.factor,
            max_us=fields.read_duration("/retry/max", self.max),
            jitter=self.jitter,
            until_at=fields.read_instant_or_none("/retry/until", self.until),
        )


class UniqueRequest(
    Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"lasts": "for"}
):
    """At most one job holds a key: while it is in these states, or for this long."""

    key: Text
    states: Annotated[list[UnfinishedState], Meta(min_length=1, max_length=5)] | None = (
        msgspec.field(default=None, name="while")
    )
    lasts: Duration | None = None
    on_conflict: Literal["return", "reject", "replace"] = "return"

    def to_unique(self) -> Unique:
        """Return the core's form."""
        for_us = fields.read_duration_or_none("/unique/for", self.lasts, limits.MILLISECOND)
        if self.states is None:
            return Unique(self.key, for_us=for_us, on_conflict=self.on_conflict)
        return Unique(self.key, tuple(dict.fromkeys(self.states)), for_us, self.on_conflict)


def read_delivery(delivery: Delivery | None) -> bool | None:
    """Return whether the job runs at most once; None if the request does not say."""
    return None if delivery is None else delivery == "at_most_once"


class JobFields(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The fields that jobs and schedules share."""

    task: Name
    payload: Raw | UnsetType = UNSET
    queue: Name = limits.DEFAULT_QUEUE
    priority: Priority = 0
    retry: RetryRequest | RetryCount | PresetName | None = None
    timeout: Duration | None = None
    expires_in: Duration | None = None
    unique: UniqueRequest | Text | None = None
    delivery: Delivery | None = None
    tags: Annotated[list[Name], Meta(max_length=limits.TAGS_MAX)] | None = None
    meta: dict[str, Any] | None = None
    requires: RequiresRequest | None = None
    prefer: Preferences | None = None

    def to_options(self, traceparent: str | None = None, tracestate: str | None = None) -> Options:
        """Return the options; PLAIN if the request sets none."""
        options = (
            self.retry,
            self.timeout,
            self.unique,
            self.tags,
            self.meta,
            self.requires,
            self.prefer,
            self.delivery,
            traceparent,
            tracestate,
        )
        if options == _NO_OPTIONS:
            return PLAIN
        return Options(
            retry=read_retry(self.retry),
            timeout_us=fields.read_duration_or_none("/timeout", self.timeout, limits.MILLISECOND),
            at_most_once=read_delivery(self.delivery),
            unique=_read_unique(self.unique),
            tags=read_tags(self.tags),
            meta=read_meta(self.meta),
            traceparent=traceparent,
            tracestate=tracestate,
            requirements=read_route(self.requires, self.prefer),
        )

    def read_expiry(self) -> int | None:
        """Return after how many microseconds a job that has not started expires."""
        return fields.read_duration_or_none("/expires_in", self.expires_in, limits.MILLISECOND)


class JobRequest(JobFields, kw_only=True):
    """A job to run: now, after a delay, or at an instant."""

    delay: Duration | None = None
    run_at: Instant | None = None
    expires_at: Instant | None = None
    traceparent: TraceParent | None = None
    tracestate: Annotated[str, Meta(max_length=512)] | None = None
    broadcast: bool = False

    def to_spec(self, traceparent: str | None = None) -> JobSpec:
        """Return the spec of the job, with the header's traceparent if the body has none."""
        if self.delay is not None and self.run_at is not None:
            raise fields.not_both("delay", "run_at")
        if self.expires_in is not None and self.expires_at is not None:
            raise fields.not_both("expires_in", "expires_at")
        if self.traceparent is not None:
            traceparent = _read_traceparent(self.traceparent)
        spec = JobSpec(
            task=fields.read_name("/task", self.task),
            payload=fields.read_payload(self.payload),
            queue=fields.read_name("/queue", self.queue),
            priority=self.priority,
            run_at=fields.read_instant_or_none("/run_at", self.run_at),
            delay_us=0 if self.delay is None else fields.read_duration("/delay", self.delay),
            expires_at=fields.read_instant_or_none("/expires_at", self.expires_at),
            expires_in_us=self.read_expiry(),
            options=self.to_options(traceparent, self.tracestate),
        )
        _check_can_run(spec)
        return spec


class JobTemplate(NamedTuple):
    """A job but for its payload: the request as it was written, and the spec that it means.

    What sends jobs over HTTP sends the request, so no field can be lost on the way; what has the
    engine at hand submits the spec.
    """

    request: JobRequest
    spec: JobSpec

    def make_specs(self, payloads: Sequence[bytes]) -> list[JobSpec]:
        """Return the spec of one job for each payload."""
        return [msgspec.structs.replace(self.spec, payload=payload) for payload in payloads]

    def make_requests(self, payloads: Sequence[bytes]) -> list[dict[str, Any]]:
        """Return the request for one job for each payload, as plain JSON data."""
        fields = msgspec.to_builtins(self.request)
        return [{**fields, "payload": msgspec.json.decode(payload)} for payload in payloads]


class JobPatch(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A change of a waiting job's due time or priority."""

    delay: Duration | None = None
    run_at: Instant | None = None
    priority: Priority | None = None

    def read_when(self) -> tuple[int | None, int | None]:
        """Return the new due time as (instant, delay in microseconds), at most one of them."""
        if self.delay is not None and self.run_at is not None:
            raise fields.not_both("delay", "run_at")
        if self.delay is None and self.run_at is None and self.priority is None:
            raise Invalid("there is nothing to change: give run_at, delay or priority")
        if self.delay is not None:
            return None, fields.read_duration("/delay", self.delay)
        return fields.read_instant_or_none("/run_at", self.run_at), None


def read_retry(value: RetryRequest | int | str | None) -> Retry | None:
    """Return the retry policy of a policy object, a number of attempts, or a preset's name."""
    if value is None:
        return None
    if isinstance(value, RetryRequest):
        return value.to_retry()
    if isinstance(value, int):
        if not 1 <= value <= limits.ATTEMPTS_MAX:
            raise Invalid.field("/retry", f"the attempts must be 1 to {limits.ATTEMPTS_MAX}")
        return Retry(max_attempts=value)
    preset = PRESETS.get(value)
    if preset is None:
        known = ", ".join(PRESETS)
        raise Invalid.field("/retry", f"{value[:40]!a} is no preset; there are {known}")
    return preset


def retry_request(retry: Retry) -> RetryRequest | str:
    """Return the name of the preset, or else the policy; a ladder exists only by name."""
    for name, preset in PRESETS.items():
        if preset == retry:
            return name
    return RetryRequest.of(retry)


def _read_unique(value: UniqueRequest | str | None) -> Unique | None:
    if value is None:
        return None
    if isinstance(value, UniqueRequest):
        return value.to_unique()
    if not 1 <= len(value) <= limits.UNIQUE_KEY_CHARACTERS_MAX:
        most = limits.UNIQUE_KEY_CHARACTERS_MAX
        raise Invalid.field("/unique", f"a unique key has 1 to {most} characters")
    return Unique(value)


def read_tags(value: list[str] | None) -> tuple[str, ...]:
    """Return the tags, each once."""
    if not value:
        return ()
    names = (fields.read_name(f"/tags/{index}", tag) for index, tag in enumerate(value))
    return tuple(dict.fromkeys(names))


def read_meta(value: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the object, unless it is too large."""
    if value and len(orjson.dumps(value)) > limits.META_BYTES_MAX:
        raise Invalid.field("/meta", f"as JSON it has more than {limits.META_BYTES_MAX} bytes")
    return value or None


def _read_traceparent(value: str) -> str:
    if not fields.is_traceparent(value):
        raise Invalid.field("/traceparent", f"{value[:60]!a} is not a W3C traceparent")
    return value


def _check_can_run(spec: JobSpec) -> None:
    """Refuse a job that expires before it is due, unless only one of the two is absolute."""
    if (
        spec.expires_in_us is not None
        and spec.run_at is None
        and spec.expires_in_us <= spec.delay_us
    ):
        raise Invalid.field("/expires_in", "the job would expire before it is due")
    if spec.expires_at is not None and spec.run_at is not None and spec.expires_at <= spec.run_at:
        raise Invalid.field("/expires_at", "the job would expire before it is due")
