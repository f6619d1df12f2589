"""The options that jobs and schedules share: as a request gives them and as a response shows them.

An option that is stored, shown and given to handlers as the request has it is a field of JobFields,
of CarriedOptions and of the core's Options; the code that renders and reads them uses these names.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Literal, Self

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schedo.core import limits
from schedo.core.built_in import BUILT_IN, show_payload
from schedo.core.model import PLAIN, JobSpec, OnFailure, Options
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import (
    Duration,
    DurationText,
    Name,
    Priority,
)
from schedo.protocol.keep import KeepRequest, read_keep, show_keep
from schedo.protocol.requirements import (
    Preferences,
    RequiresRequest,
    read_requirements,
    requirements_fields,
)
from schedo.protocol.retries import PresetName, RetryCount, RetryRequest, read_retry, retry_request
from schedo.protocol.times import render_duration

Delivery = Literal["at_least_once", "at_most_once"]
_BUILT_IN = ", ".join(f"{name} ({task.description})" for name, task in BUILT_IN.items())
TaskName = Annotated[
    Name,
    Meta(
        description=f"A task of an application, or built in: {_BUILT_IN}. 1 to 128 letters, digits,"
        " dots, underscores and hyphens; no hyphen first."
    ),
]
_NO_OPTIONS = (None,) * 10


class SharedFields(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The fields of everything that runs a task, however it is started."""

    task: TaskName
    queue: Name = limits.DEFAULT_QUEUE
    timeout: Duration | None = None
    tags: Annotated[list[Name], Meta(max_length=limits.TAGS_MAX)] | None = None
    meta: dict[str, Any] | None = None
    keep: KeepRequest | None = None


class TaskFields(SharedFields, kw_only=True):
    """The fields of a request that runs a task right now."""

    payload: Raw | UnsetType = UNSET


class QueuedFields(SharedFields, kw_only=True):
    """The fields of every job that waits in a queue."""

    priority: Priority = 0
    retry: RetryRequest | RetryCount | PresetName | None = None
    expires_in: Duration | None = None
    delivery: Delivery | None = None
    requires: RequiresRequest | None = None
    prefer: Preferences | None = None

    def to_options(self, traceparent: str | None = None, tracestate: str | None = None) -> Options:
        """Return the options; PLAIN if the request sets none."""
        options = (
            self.retry,
            self.timeout,
            self.tags,
            self.meta,
            self.requires,
            self.prefer,
            self.delivery,
            self.keep,
            traceparent,
            tracestate,
        )
        if options == _NO_OPTIONS:
            return PLAIN
        return Options(
            retry=read_retry(self.retry),
            timeout_us=fields.read_duration_or_none("/timeout", self.timeout, limits.MILLISECOND),
            at_most_once=read_delivery(self.delivery),
            tags=read_tags(self.tags),
            meta=read_meta(self.meta),
            traceparent=traceparent,
            tracestate=tracestate,
            requirements=read_requirements(self.requires, self.prefer),
            keep=read_keep("/keep", self.keep),
        )

    def read_expiry(self) -> int | None:
        """Return after how many microseconds a job that has not started expires."""
        return fields.read_duration_or_none("/expires_in", self.expires_in, limits.MILLISECOND)


class EventJobRequest(QueuedFields, kw_only=True):
    """A job that an event makes; the facts of the event are added to its payload."""

    payload: dict[str, Any] | None = None

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        """Return the request for the event job, with its secrets."""
        options = spec.options
        shown = option_fields(options)
        if options.retry is not None:
            shown["retry"] = msgspec.to_builtins(retry_request(options.retry))
        if spec.expires_in_us is not None:
            shown["expires_in"] = render_duration(spec.expires_in_us)
        shown["payload"] = msgspec.json.decode(spec.payload)
        return msgspec.convert(
            shown | {"task": spec.task, "queue": spec.queue, "priority": spec.priority}, cls
        )

    @classmethod
    def shown(cls, spec: JobSpec) -> Self:
        """Return the request for the event job without its secrets, for responses."""
        payload = show_payload(spec.task, spec.payload)
        return cls.of(msgspec.structs.replace(spec, payload=payload))

    def to_spec(self) -> OnFailure:
        """Return the spec of the job, without the facts."""
        spec = OnFailure(
            task=fields.read_name("/task", self.task),
            payload=msgspec.json.encode(self.payload),
            queue=fields.read_name("/queue", self.queue),
            priority=self.priority,
            expires_in_us=self.read_expiry(),
            options=self.to_options(),
        )
        # The encoder would render the payload as Base64, which is longer.
        others = msgspec.structs.replace(spec, payload=b"")
        size = len(spec.payload) + len(msgspec.json.encode(others))
        if size > limits.EVENT_JOB_BYTES_MAX:
            most = limits.EVENT_JOB_BYTES_MAX
            raise Invalid.field("", f"an event job has at most {most} bytes with its payload")
        return spec


class JobFields(QueuedFields, kw_only=True):
    """The fields that jobs and schedules share."""

    payload: Raw | UnsetType = UNSET
    on_failure: EventJobRequest | TaskName | None = None

    def to_options(self, traceparent: str | None = None, tracestate: str | None = None) -> Options:
        """Return the options; PLAIN if the request sets none."""
        options = super().to_options(traceparent, tracestate)
        if self.on_failure is None:
            return options
        return msgspec.structs.replace(
            options, on_failure=read_event_job("/on_failure", self.on_failure)
        )


class CarriedOptions(Struct, kw_only=True):
    """The options that every response shows under the name and with the value that the core has."""

    tags: tuple[str, ...] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET


class OptionsResponse(CarriedOptions, kw_only=True):
    """The options that the responses for jobs and schedules show, if they are set."""

    delivery: Delivery | UnsetType = UNSET
    timeout: DurationText | UnsetType = UNSET
    requires: RequiresRequest | UnsetType = UNSET
    prefer: Preferences | UnsetType = UNSET
    on_failure: EventJobRequest | UnsetType = UNSET
    keep: KeepRequest | UnsetType = UNSET


# Carried too: the trace context, by the responses for jobs and by leases, and the name of the
# schedule, by leases.
CARRIED = (*CarriedOptions.__struct_fields__, "traceparent", "tracestate", "schedule")
_get_carried = attrgetter(*CARRIED)
_NOTHING_CARRIED = _get_carried(PLAIN)


def carried_fields(options: Options) -> dict[str, Any]:
    """Return the carried options that are set."""
    values = _get_carried(options)
    if values == _NOTHING_CARRIED:
        return {}
    carried = zip(CARRIED, values, _NOTHING_CARRIED, strict=True)
    return {name: value for name, value, default in carried if value != default}


def option_fields(  # noqa: C901, PLR0912  # one arm for each option
    options: Options,
) -> dict[str, Any]:
    """Return the options that the responses for jobs and schedules show, as plain JSON data.

    Every response with a job is made with it, so it takes each option by its name: that is twice as
    fast as by CARRIED.
    """
    shown: dict[str, Any] = {}
    if options.at_most_once is not None:
        shown["delivery"] = "at_most_once" if options.at_most_once else "at_least_once"
    if options.timeout_us is not None:
        shown["timeout"] = render_duration(options.timeout_us)
    if options.tags:
        shown["tags"] = options.tags
    if options.meta is not None:
        shown["meta"] = options.meta
    if options.traceparent is not None:
        shown["traceparent"] = options.traceparent
    if options.tracestate is not None:
        shown["tracestate"] = options.tracestate
    if options.requirements is not None:
        shown.update(requirements_fields(options.requirements))
    if options.on_failure is not None:
        shown["on_failure"] = msgspec.to_builtins(EventJobRequest.shown(options.on_failure))
    if options.keep is not None:
        shown["keep"] = show_keep(options.keep)
    return shown


def read_event_job(pointer: str, value: EventJobRequest | str | None) -> OnFailure | None:
    """Return the spec of an event job, or of one with this task and nothing else."""
    if value is None:
        return None
    request = EventJobRequest(task=value) if isinstance(value, str) else value
    return fields.read_under(pointer, request.to_spec)


def read_delivery(delivery: Delivery | None) -> bool | None:
    """Return whether the job runs at most once; None if the request does not say."""
    return None if delivery is None else delivery == "at_most_once"


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
