"""What is expected of the runs of a schedule: as a request gives it and as a response shows it."""

from __future__ import annotations

from typing import Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core.expectations import Expectation, ExpectationState
from schedo.core.limits import MILLISECOND
from schedo.core.model import Expect, JobSpec
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import (
    Duration,
    DurationText,
    Instant,
    duration_or_unset,
    instant_or_unset,
)
from schedo.protocol.options import EventJobRequest, TaskName, read_event_job
from schedo.protocol.times import render_instant


class ExpectRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is expected of each run, and the jobs that run when it is missed and met again."""

    within: Duration | None = None
    max_duration: Duration | None = None
    on_miss: EventJobRequest | TaskName | None = None
    on_back: EventJobRequest | TaskName | None = None

    def to_expect(self) -> Expect:
        """Return the core's form; errors point into the request."""
        if self.within is None and self.max_duration is None:
            raise Invalid.field("", "give within, max_duration or both")
        return Expect(
            within_us=fields.read_duration_or_none("/within", self.within, MILLISECOND),
            max_duration_us=fields.read_duration_or_none(
                "/max_duration", self.max_duration, MILLISECOND
            ),
            on_miss=read_event_job("/on_miss", self.on_miss),
            on_back=read_event_job("/on_back", self.on_back),
        )


class ExpectResponse(Struct, forbid_unknown_fields=True):
    """What is expected of each run."""

    within: DurationText | UnsetType = UNSET
    max_duration: DurationText | UnsetType = UNSET
    on_miss: EventJobRequest | UnsetType = UNSET
    on_back: EventJobRequest | UnsetType = UNSET

    @classmethod
    def of(cls, expect: Expect) -> Self:
        return cls(
            duration_or_unset(expect.within_us),
            duration_or_unset(expect.max_duration_us),
            event_job_or_unset(expect.on_miss),
            event_job_or_unset(expect.on_back),
        )


class ExpectationStatus(Struct, forbid_unknown_fields=True):
    """Whether an expectation is met: since when, how often it was missed, and its next limit."""

    state: ExpectationState
    since: Instant
    missed: int
    kept_at: Instant | UnsetType = UNSET  # when the last run has completed
    limit_at: Instant | UnsetType = UNSET

    @classmethod
    def of(cls, expectation: Expectation) -> Self:
        return cls(
            expectation.state,
            render_instant(expectation.since),
            expectation.missed,
            instant_or_unset(expectation.kept_at),
            instant_or_unset(expectation.limit()),
        )


def event_job_or_unset(spec: JobSpec | None) -> EventJobRequest | UnsetType:
    """Return the event job as responses show it."""
    return UNSET if spec is None else EventJobRequest.shown(spec)
