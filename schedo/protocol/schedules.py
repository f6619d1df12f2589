"""Requests about schedules, and their conversion to the core's ScheduleSpec."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from schedo.core import limits
from schedo.core.cron import check_zone, parse_cron
from schedo.core.model import Catchup, JobSpec, Overlap, Rule, ScheduleSpec
from schedo.core.triggers import check_rule
from schedo.errors import Invalid, Problem
from schedo.protocol import fields
from schedo.protocol.fields import Duration, Instant
from schedo.protocol.jobs import JobFields

CronText = Annotated[
    str,
    Meta(
        description="5 fields, or 6 with seconds first; macros as @daily; H for a hashed value.",
        examples=["0 9 * * mon-fri"],
        extra_json_schema={"maxLength": limits.CRON_CHARACTERS_MAX},
    ),
]
Zone = Annotated[str, Meta(description="An IANA zone name.", examples=["Europe/Paris"])]
OverlapName = Literal["skip", "allow", "buffer_one", "cancel_other"]
CatchupName = Literal["latest", "all", "skip"]
Note = Annotated[str, Meta(max_length=500)]


class DstRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The handling of fixed times on days when the clock changes."""

    gap: Literal["after", "skip"] = "after"
    fold: Literal["first", "last", "both"] = "first"


class ScheduleRequest(JobFields, kw_only=True):
    """A recurring rule: exactly one of cron, every and at."""

    cron: CronText | None = None
    every: Duration | None = None
    at: Instant | None = None
    tz: Zone | None = None
    dst: DstRequest | None = None
    overlap: OverlapName = "skip"
    catchup: CatchupName = "latest"
    catchup_window: Duration = "24h"
    catchup_max: Annotated[int, Meta(ge=1, le=limits.CATCHUP_RUNS_MAX)] = limits.CATCHUP_MAX
    jitter: Duration | None = None
    start_at: Instant | None = None
    end_at: Instant | None = None
    paused: bool = False

    def to_spec(self, name: str) -> ScheduleSpec:
        """Return the schedule as the engine takes it."""
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
            overlap=Overlap(self.overlap),
            catchup=Catchup(self.catchup),
            catchup_window_us=fields.read_duration("/catchup_window", self.catchup_window),
            catchup_max=self.catchup_max,
            paused=self.paused,
        )

    def _read_rule(self, name: str) -> Rule:
        given = [each for each in ("cron", "every", "at") if getattr(self, each) is not None]
        if len(given) != 1:
            raise Invalid(
                f"give exactly one of cron, every and at, not {' and '.join(given) or 'none'}",
                *(Problem(f"/{each}", "exclude each other") for each in given),
            )
        when = _read_cron(self.cron, self.tz, name) if self.cron is not None else None
        every_us = fields.read_duration_or_none("/every", self.every)
        dst = self.dst or DstRequest()
        return Rule(
            cron=when.normalized if when else None,
            tz=when.tz if when else _read_zone(self.tz),
            gap=dst.gap,
            fold=dst.fold,
            every_us=when.every_us if when else every_us,
            at=fields.read_instant_or_none("/at", self.at),
            start_at=fields.read_instant_or_none("/start_at", self.start_at),
            end_at=fields.read_instant_or_none("/end_at", self.end_at),
            jitter_us=fields.read_duration_or_none("/jitter", self.jitter) or 0,
        )


class CronRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A cron expression to explain."""

    cron: CronText
    tz: Zone | None = None
    name: fields.Name = "example"  # what H is hashed from

    def read(self) -> ParsedRule:
        """Return the checked expression."""
        return _read_cron(self.cron, self.tz, fields.read_name("/name", self.name))


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

    overlap: OverlapName | None = None


class ParsedRule(NamedTuple):
    """A checked cron expression with its zone."""

    normalized: str | None
    every_us: int | None
    tz: str
    warnings: tuple[str, ...]


def _read_cron(text: str, tz: str | None, seed: str) -> ParsedRule:
    parsed = parse_cron(text, seed=seed)
    zone = _read_zone(tz)
    if parsed.tz is not None:
        if tz is not None and tz != parsed.tz:
            raise Invalid.field("/tz", f"the expression itself says {parsed.tz}")
        zone = parsed.tz
    return ParsedRule(parsed.normalized, parsed.every_us, zone, tuple(parsed.warnings))


def _read_zone(tz: str | None) -> str:
    if tz is None:
        return "UTC"
    check_zone(tz)
    return tz
