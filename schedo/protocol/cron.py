"""Cron expressions: the request that explains one, their fires, and a rule in words."""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.core import limits
from schedo.core.cron import check_zone, describe_clock_change, explain, parse_cron
from schedo.core.model import Rule
from schedo.core.triggers import next_after
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import DurationText, Instant, duration_or_unset, or_unset
from schedo.protocol.times import render_duration, render_instant

CronText = Annotated[
    str,
    Meta(
        description="5 fields, or 6 with seconds first; macros as @daily; H for a hashed value.",
        examples=["0 9 * * mon-fri"],
        extra_json_schema={"maxLength": limits.CRON_CHARACTERS_MAX},
    ),
]
Zone = Annotated[str, Meta(description="An IANA zone name.", examples=["Europe/Paris"])]


class ParsedRule(NamedTuple):
    """A checked cron expression with its zone."""

    normalized: str | None
    every_us: int | None
    tz: str
    warnings: tuple[str, ...]


def read_cron(text: str, tz: str | None, seed: str) -> ParsedRule:
    """Return the checked expression; seed: H is a hash of it."""
    parsed = parse_cron(text, seed=seed)
    zone = read_zone(tz)
    if parsed.tz is not None:
        if tz is not None and tz != parsed.tz:
            raise Invalid.field("/tz", f"the expression itself names the zone {parsed.tz}")
        zone = parsed.tz
    return ParsedRule(parsed.normalized, parsed.every_us, zone, tuple(parsed.warnings))


def read_zone(tz: str | None) -> str:
    if tz is None:
        return "UTC"
    check_zone(tz)
    return tz


class CronRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A cron expression to explain."""

    cron: CronText
    tz: Zone | None = None
    name: fields.Name = "example"  # H is a hash of it

    def read(self) -> ParsedRule:
        """Return the checked expression."""
        return read_cron(self.cron, self.tz, fields.read_name("/name", self.name))


class ClockChangeResponse(Struct, forbid_unknown_fields=True):
    """A fire that a change of the zone's clock moves or repeats, and how."""

    at: Instant
    description: str


def describe_rule(rule: Rule) -> str:
    """Return the rule in words."""
    if rule.cron is not None:
        return explain(rule.cron)
    if rule.every_us is not None:
        return f"Every {render_duration(rule.every_us)}"
    assert rule.at is not None, "a rule has a cron, an interval or an instant"
    return f"Once, at {render_instant(rule.at)}"


def list_fires(rule: Rule, after: int, count: int = limits.FIRES_SHOWN) -> list[int]:
    """Return the first `count` instants of the rule after an instant."""
    fires: list[int] = []
    fire = next_after(rule, after)
    while fire is not None and len(fires) < count:
        fires.append(fire)
        fire = next_after(rule, fire)
    return fires


class CronResponse(Struct, forbid_unknown_fields=True):
    """The meaning of a cron expression, and its next fires."""

    tz: str
    description: str
    next_fires: list[Instant]
    clock_changes: list[ClockChangeResponse]
    warnings: list[str]
    normalized: str | UnsetType = UNSET
    every: DurationText | UnsetType = UNSET

    @classmethod
    def of(cls, when: ParsedRule, after: int, count: int = limits.FIRES_SHOWN) -> Self:
        """Return the response with the first `count` fires after an instant."""
        rule = Rule(cron=when.normalized, every_us=when.every_us, tz=when.tz)
        fires = list_fires(rule, after, count)
        changes = [
            (fire, describe_clock_change(when.normalized, when.tz, fire))
            for fire in fires
            if when.normalized is not None
        ]
        return cls(
            tz=when.tz,
            description=describe_rule(rule),
            next_fires=[render_instant(fire) for fire in fires],
            clock_changes=[
                ClockChangeResponse(render_instant(fire), text)
                for fire, text in changes
                if text is not None
            ],
            warnings=list(when.warnings),
            normalized=or_unset(when.normalized),
            every=duration_or_unset(when.every_us),
        )
