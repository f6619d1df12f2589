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
from schedo.core.built_in import BUILT_IN
from schedo.core.model import PLAIN, Options, Retry, Unique
from schedo.core.retry import PRESETS
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import (
    Duration,
    DurationText,
    Instant,
    Name,
    Priority,
    Text,
    duration_or_unset,
    instant_or_unset,
)
from schedo.protocol.requirements import (
    Preferences,
    RequiresRequest,
    read_requirements,
    requirements_fields,
)
from schedo.protocol.times import render_duration, render_instant

# read_retry checks it: there the pointer is right also inside of a task's defaults.
RetryCount = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": limits.ATTEMPTS_MAX})]
PresetName = Annotated[str, Meta(extra_json_schema={"enum": list(PRESETS)})]
Attempts = Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)]
Delivery = Literal["at_least_once", "at_most_once"]
UnfinishedState = Literal["scheduled", "blocked", "queued", "running", "retrying"]
_BUILT_IN = ", ".join(f"{name} ({task.description})" for name, task in BUILT_IN.items())
TaskName = Annotated[
    Name,
    Meta(
        description=f"A task of an application, or built in: {_BUILT_IN}. 1 to 128 letters, digits,"
        " dots, underscores and hyphens; no hyphen first."
    ),
]
_NO_OPTIONS = (None,) * 10


class RetryRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The retry policy of a job."""

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


class RetryResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A retry policy; a ladder is the list of the delays of a preset."""

    max_attempts: int
    backoff: Literal["exponential", "fixed", "ladder"]
    initial: DurationText
    factor: float
    max: DurationText
    jitter: float
    ladder: list[DurationText] | UnsetType = UNSET
    until: Instant | UnsetType = UNSET

    @classmethod
    def of(cls, retry: Retry) -> Self:
        return cls(
            max_attempts=retry.max_attempts,
            backoff=retry.backoff,
            initial=render_duration(retry.initial_us),
            factor=retry.factor,
            max=render_duration(retry.max_us),
            jitter=retry.jitter,
            ladder=[render_duration(step_us) for step_us in retry.ladder_us] or UNSET,
            until=instant_or_unset(retry.until_at),
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


class UniqueResponse(
    Struct, forbid_unknown_fields=True, rename={"states": "while", "lasts": "for"}
):
    """A unique key, and which jobs hold it."""

    key: str
    states: tuple[str, ...]
    on_conflict: str
    lasts: DurationText | UnsetType = UNSET

    @classmethod
    def of(cls, unique: Unique) -> Self:
        return cls(unique.key, unique.states, unique.on_conflict, duration_or_unset(unique.for_us))


class TaskFields(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The fields of every request that runs a task: of jobs, schedules and invocations."""

    task: TaskName
    payload: Raw | UnsetType = UNSET
    queue: Name = limits.DEFAULT_QUEUE
    timeout: Duration | None = None
    tags: Annotated[list[Name], Meta(max_length=limits.TAGS_MAX)] | None = None
    meta: dict[str, Any] | None = None


class JobFields(TaskFields, kw_only=True):
    """The fields that jobs and schedules share."""

    priority: Priority = 0
    retry: RetryRequest | RetryCount | PresetName | None = None
    expires_in: Duration | None = None
    unique: UniqueRequest | Text | None = None
    delivery: Delivery | None = None
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
            requirements=read_requirements(self.requires, self.prefer),
        )

    def read_expiry(self) -> int | None:
        """Return after how many microseconds a job that has not started expires."""
        return fields.read_duration_or_none("/expires_in", self.expires_in, limits.MILLISECOND)


class CarriedOptions(Struct, kw_only=True):
    """The options that every response shows under the name and with the value that the core has."""

    tags: tuple[str, ...] | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET


class OptionsResponse(CarriedOptions, kw_only=True):
    """The options that the responses for jobs and schedules show, if they are set."""

    delivery: Literal["at_most_once"] | UnsetType = UNSET
    timeout: DurationText | UnsetType = UNSET
    requires: RequiresRequest | UnsetType = UNSET
    prefer: Preferences | UnsetType = UNSET


# The trace context is carried too, but only by the responses for jobs and by leases.
CARRIED = (*CarriedOptions.__struct_fields__, "traceparent", "tracestate")
_get_carried = attrgetter(*CARRIED)
_NOTHING_CARRIED = _get_carried(PLAIN)


def carried_fields(options: Options) -> dict[str, Any]:
    """Return the carried options that are set."""
    values = _get_carried(options)
    if values == _NOTHING_CARRIED:
        return {}
    carried = zip(CARRIED, values, _NOTHING_CARRIED, strict=True)
    return {name: value for name, value, default in carried if value != default}


def option_fields(options: Options) -> dict[str, Any]:
    """Return the options that the responses for jobs and schedules show, as plain JSON data.

    Every response with a job is made with it, so it takes each option by its name: that is twice as
    fast as by CARRIED.
    """
    shown: dict[str, Any] = {}
    if options.at_most_once:
        shown["delivery"] = "at_most_once"
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
    return shown


def read_delivery(delivery: Delivery | None) -> bool | None:
    """Return whether the job runs at most once; None if the request does not say."""
    return None if delivery is None else delivery == "at_most_once"


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
