"""Schedules: the requests that put, explain and trigger them, and the responses that show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Self

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schedo.core import limits
from schedo.core.built_in import show_payload
from schedo.core.commands import PutEffect
from schedo.core.ids import render_id
from schedo.core.model import (
    Catchup,
    Decision,
    DecisionRecord,
    JobSpec,
    Overlap,
    Rule,
    Schedule,
    ScheduleSpec,
)
from schedo.core.run_history import NO_RUNS, RunHistory
from schedo.core.schedule_filter import Health
from schedo.core.triggers import check_rule
from schedo.errors import Invalid, Problem
from schedo.protocol import fields
from schedo.protocol.cron import CronText, DstRequest, Fold, Gap, Zone, read_cron, read_zone
from schedo.protocol.expect import ExpectationStatus, ExpectRequest, ExpectResponse
from schedo.protocol.fields import (
    Duration,
    DurationText,
    Id,
    Instant,
    duration_or_unset,
    instant_or_unset,
    or_unset,
    read_under,
)
from schedo.protocol.jobs import JobResponse
from schedo.protocol.options import JobFields, OptionsResponse, option_fields
from schedo.protocol.retries import RetryResponse
from schedo.protocol.run_histories import RunHistoryResponse
from schedo.protocol.schedule_filters import ScheduleCountsResponse
from schedo.protocol.times import render_duration, render_instant

Note = Annotated[str, Meta(max_length=500)]


class ScheduleRequest(JobFields, kw_only=True):
    """A recurring rule: exactly one of cron, every and at."""

    cron: CronText | None = None
    every: Duration | None = None
    at: Instant | None = None
    tz: Zone | None = None
    dst: DstRequest | None = None
    overlap: Overlap = Overlap.SKIP
    catchup: Catchup = Catchup.LATEST
    catchup_window: Duration = "24h"
    catchup_max: Annotated[int, Meta(ge=1, le=limits.CATCHUP_RUNS_MAX)] = limits.CATCHUP_MAX
    jitter: Duration | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None
    paused: bool = False
    expect: ExpectRequest | None = None

    def to_spec(self, name: str) -> ScheduleSpec:
        """Return the spec of the schedule for the engine."""
        name = fields.read_name("/name", name)
        rule = self._read_rule(name)
        check_rule(rule)
        return ScheduleSpec(
            name=name,
            rule=rule,
            job=JobSpec(
                task=fields.read_name("/task", self.task),
                payload=fields.read_payload(self.payload),
                queue=fields.read_name("/queue", self.queue),
                priority=self.priority,
                expires_in_us=self.read_expiry(),
                options=self.to_options(),
            ),
            cron_source=self.cron,
            overlap=self.overlap,
            catchup=self.catchup,
            catchup_window_us=fields.read_duration("/catchup_window", self.catchup_window),
            catchup_max=self.catchup_max,
            paused=self.paused,
            expect=None if self.expect is None else read_under("/expect", self.expect.to_expect),
        )

    def _read_rule(self, name: str) -> Rule:
        given = [each for each in ("cron", "every", "at") if getattr(self, each) is not None]
        if len(given) != 1:
            raise Invalid(
                f"give exactly one of cron, every and at, not {' and '.join(given) or 'none'}",
                *(Problem(f"/{each}", "exclude each other") for each in given),
            )
        when = read_cron(self.cron, self.tz, name) if self.cron is not None else None
        every_us = fields.read_duration_or_none("/every", self.every)
        dst = self.dst or DstRequest()
        return Rule(
            cron=when.normalized if when else None,
            tz=when.tz if when else read_zone(self.tz),
            gap=dst.gap,
            fold=dst.fold,
            every_us=when.every_us if when else every_us,
            at=fields.read_instant_or_none("/at", self.at),
            start_at=fields.read_instant_or_none("/start_at", self.start_at),
            end_at=fields.read_instant_or_none("/end_at", self.end_at),
            jitter_us=fields.read_duration_or_none("/jitter", self.jitter) or 0,
        )


class EmptyRequest(Struct, forbid_unknown_fields=True):
    """A request without fields."""


class PauseRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Why the schedule is paused."""

    note: Note | None = None


class ResumeRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The instant from which the schedule catches up; default: now."""

    resume_from: Instant | None = None


class TriggerRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The overlap policy of this run; default: that of the schedule."""

    overlap: Overlap | None = None


class DstResponse(Struct, forbid_unknown_fields=True):
    """The handling of fixed times when the clock changes."""

    gap: Gap
    fold: Fold


class CountersResponse(Struct, forbid_unknown_fields=True):
    """The numbers of decisions on a schedule's instants."""

    fired: int
    missed: int
    overlap_skipped: int
    buffered: int


class ScheduleResponse(OptionsResponse, forbid_unknown_fields=True, kw_only=True):
    """The current state of a schedule; fields without a value are left out."""

    name: str
    cron: str | UnsetType = UNSET
    normalized: str | UnsetType = UNSET
    every: DurationText | UnsetType = UNSET
    at: Instant | UnsetType = UNSET
    tz: str
    dst: DstResponse | UnsetType = UNSET
    jitter: DurationText | UnsetType = UNSET
    start_at: Instant | UnsetType = UNSET
    end_at: Instant | UnsetType = UNSET
    description: str | UnsetType = UNSET
    task: str
    payload: Raw | UnsetType = UNSET  # hidden from some viewers
    queue: str
    priority: int
    retry: RetryResponse | UnsetType = UNSET
    expires_in: DurationText | UnsetType = UNSET
    overlap: Overlap
    catchup: Catchup
    catchup_window: DurationText
    catchup_max: int
    paused: bool
    note: str | UnsetType = UNSET
    owner: str  # "api", or what declares it: "code:shop:app"
    edited: list[str] | UnsetType = UNSET  # changed by hand since the owner declared them
    created_at: Instant
    updated_at: Instant
    next_fires: list[Instant]
    last_fired_at: Instant | UnsetType = UNSET
    last_job: Id | UnsetType = UNSET
    counters: CountersResponse
    runs: RunHistoryResponse
    median_run: DurationText | UnsetType = UNSET  # of those of its last runs that completed
    health: Health | UnsetType = UNSET
    expect: ExpectResponse | UnsetType = UNSET
    expectation: ExpectationStatus | UnsetType = UNSET
    warnings: list[str]
    effect: PutEffect | UnsetType = UNSET  # of the PUT that this responds to

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        fires: Iterable[int] = (),
        description: str | None = None,
        warnings: Sequence[str] = (),
        history: RunHistory = NO_RUNS,
    ) -> Self:
        """Return the response; `fires` are its next instants, `description` explains its rule."""
        spec, rule, job = schedule.spec, schedule.spec.rule, schedule.spec.job
        options = job.options
        return cls(
            name=spec.name,
            cron=or_unset(spec.cron_source or rule.cron),
            normalized=or_unset(rule.cron),
            every=UNSET if spec.cron_source else duration_or_unset(rule.every_us),
            at=instant_or_unset(rule.at),
            tz=rule.tz,
            dst=UNSET if rule.cron is None else DstResponse(rule.gap, rule.fold),
            jitter=duration_or_unset(rule.jitter_us or None),
            start_at=instant_or_unset(rule.start_at),
            end_at=instant_or_unset(rule.end_at),
            description=or_unset(description),
            task=job.task,
            payload=Raw(show_payload(job.task, job.payload)),
            queue=job.queue,
            priority=job.priority,
            retry=UNSET if options.retry is None else RetryResponse.of(options.retry),
            expires_in=duration_or_unset(job.expires_in_us),
            overlap=spec.overlap,
            catchup=spec.catchup,
            catchup_window=render_duration(spec.catchup_window_us),
            catchup_max=spec.catchup_max,
            paused=schedule.paused,
            note=or_unset(schedule.note),
            owner=schedule.owner,
            created_at=render_instant(schedule.created_at),
            updated_at=render_instant(schedule.updated_at),
            next_fires=[render_instant(fire) for fire in fires],
            last_fired_at=instant_or_unset(schedule.last_fired_at),
            last_job=UNSET if schedule.last_job_id is None else render_id(schedule.last_job_id),
            counters=CountersResponse(
                schedule.fired, schedule.missed, schedule.overlap_skipped, schedule.buffered
            ),
            runs=RunHistoryResponse.of(history),
            expect=UNSET if spec.expect is None else ExpectResponse.of(spec.expect),
            warnings=list(warnings),
            **option_fields(options),
        )


class SchedulePage(Struct, forbid_unknown_fields=True):
    """A page of schedules; without next_cursor it is the last.

    counts: of all schedules, in the first page. looked_at: how many schedules the search has
    passed; then the page may be short although the list continues.
    """

    items: list[ScheduleResponse]
    next_cursor: str | UnsetType = UNSET
    counts: ScheduleCountsResponse | UnsetType = UNSET
    looked_at: int | UnsetType = UNSET


class DecisionResponse(Struct, forbid_unknown_fields=True):
    """The decision on one instant, or on `count` instants that end with it."""

    scheduled_for: Instant
    decided_at: Instant
    decision: Decision
    count: int
    job: Id | UnsetType = UNSET

    @classmethod
    def of(cls, decision: DecisionRecord) -> Self:
        return cls(
            render_instant(decision.scheduled_for),
            render_instant(decision.decided_at),
            decision.decision,
            decision.count,
            UNSET if decision.job_id is None else render_id(decision.job_id),
        )


class DecisionPage(Struct, forbid_unknown_fields=True):
    """A page of the decisions of a schedule, newest first; without next_cursor it is the last."""

    items: list[DecisionResponse]
    next_cursor: str | UnsetType = UNSET


class TriggerResponse(Struct, forbid_unknown_fields=True):
    """The new job, or the unfinished job that prevented it."""

    job: JobResponse | UnsetType = UNSET
    skipped_overlap: bool | UnsetType = UNSET
    blocking_job: Id | UnsetType = UNSET
