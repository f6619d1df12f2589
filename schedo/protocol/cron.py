"""Cron expressions: the request that explains one, their fires, and a rule in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.core import limits
from schedo.core.cron import check_zone, explain, parse_cron
from schedo.core.cron_syntax import is_fixed_time
from schedo.core.model import Rule
from schedo.core.triggers import instants_after
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import DurationText, Instant, duration_or_unset, or_unset
from schedo.protocol.query import LIMIT_MAX
from schedo.protocol.times import render_duration, render_instant

if TYPE_CHECKING:  # few servers need these modules
    from schedo.core.fire_map import Together
    from schedo.core.fires import ScheduleFire

CronText = Annotated[
    str,
    Meta(
        description="5 fields, or 6 with seconds first; macros as @daily; H for a hashed value.",
        examples=["0 9 * * mon-fri"],
        extra_json_schema={"maxLength": limits.CRON_CHARACTERS_MAX},
    ),
]
Zone = Annotated[str, Meta(description="An IANA zone name.", examples=["Europe/Paris"])]


TOO_LATE = "fires are listed from the year 1970 to 9999-12-29"

Gap = Literal["after", "skip"]
Fold = Literal["first", "last", "both"]


class DstRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The handling of fixed times on days when the clock changes."""

    gap: Gap = "after"
    fold: Fold = "first"


class ParsedRule(NamedTuple):
    """A checked cron expression with its zone."""

    normalized: str | None
    every_us: int | None
    tz: str
    warnings: tuple[str, ...]
    gap: Gap = "after"
    fold: Fold = "first"

    @property
    def rule(self) -> Rule:
        return Rule(
            cron=self.normalized, every_us=self.every_us, tz=self.tz, gap=self.gap, fold=self.fold
        )


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


class CronRequest(
    Struct,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"start": "from", "end": "to"},
):
    """A cron expression to explain: its first `count` fires in a range of time.

    coincidences: count the schedules, other than `name`, that fire in the same seconds.
    """

    cron: CronText
    tz: Zone | None = None
    name: fields.Name = "example"  # H is a hash of it

    dst: DstRequest | None = None
    start: Instant | None = None
    end: Instant | None = None
    count: Annotated[int, Meta(ge=1, le=limits.FIRES_LISTED_MAX)] = limits.FIRES_SHOWN
    coincidences: bool = False

    def read(self) -> ParsedRule:
        """Return the checked expression."""
        parsed = read_cron(self.cron, self.tz, fields.read_name("/name", self.name))
        dst = self.dst or DstRequest()
        return parsed._replace(gap=dst.gap, fold=dst.fold)

    def read_range(self, now: int) -> tuple[int, int]:
        """Return the first and the last instant for the fires: by default all after now."""
        first = fields.read_instant_or_none("/from", self.start)
        last = fields.read_instant_or_none("/to", self.end)
        first = now + 1 if first is None else first
        if last is not None and last < first:
            raise Invalid.field("/to", "it is before `from`")
        if first > limits.LISTED_FIRE_MAX:
            raise Invalid.field("/from", TOO_LATE)
        most = limits.LISTED_FIRE_MAX
        return first, most if last is None else min(last, most)


class ClockChangeResponse(Struct, forbid_unknown_fields=True):
    """A fire that a change of the zone's clock moves or repeats, and how."""

    at: Instant
    description: str


# These three are kept for a page of schedules, because a screen reads its page again and again.
_explained = lru_cache(maxsize=LIMIT_MAX)(explain)


@lru_cache(maxsize=LIMIT_MAX)
def list_warnings(text: str, seed: str) -> Sequence[str]:
    """Return the warnings about a valid expression."""
    return tuple(parse_cron(text, seed=seed).warnings)


def list_dst_warnings(rule: Rule) -> list[str]:
    """Return the warning that the choices for clock changes mean nothing to this rule, if so."""
    is_fine = (rule.gap, rule.fold) in (("after", "first"), ("skip", "both"))
    if rule.cron is None or is_fine or is_fixed_time(rule.cron):
        return []
    return [
        "dst has no effect, because the minutes or the hours begin with *: nothing fires for times"
        " that do not exist, and times that exist twice fire both times"
    ]


def describe_rule(rule: Rule) -> str:
    """Return the rule in words."""
    if rule.cron is not None:
        return _explained(rule.cron)
    if rule.every_us is not None:
        return f"Every {render_duration(rule.every_us)}"
    assert rule.at is not None, "a rule has a cron, an interval or an instant"
    return f"Once, at {render_instant(rule.at)}"


@lru_cache(maxsize=LIMIT_MAX)
def list_fires(rule: Rule, after: int, count: int = limits.FIRES_SHOWN) -> Sequence[int]:
    """Return the first `count` instants of the rule after an instant."""
    return tuple(islice(instants_after(rule, after), count))


class TogetherResponse(Struct, forbid_unknown_fields=True):
    """A second in which schedules fire: how many, and the names of the first 20."""

    at: Instant
    schedules: int
    names: list[fields.Name]

    @classmethod
    def of(cls, together: Together) -> Self:
        return cls(render_instant(together.at), together.schedules, list(together.names))


class CronResponse(Struct, forbid_unknown_fields=True):
    """The meaning of a cron expression, and its next fires.

    together: how many other schedules fire in the second of each of the first five fires.
    """

    tz: str
    description: str
    next_fires: list[Instant]
    clock_changes: list[ClockChangeResponse]
    warnings: list[str]
    normalized: str | UnsetType = UNSET
    every: DurationText | UnsetType = UNSET
    together: list[TogetherResponse] | UnsetType = UNSET

    @classmethod
    def of(cls, when: ParsedRule, fires: Sequence[ScheduleFire]) -> Self:
        """Return the response with these fires."""
        return cls(
            tz=when.tz,
            description=describe_rule(when.rule),
            next_fires=[render_instant(fire.at) for fire in fires],
            clock_changes=[
                ClockChangeResponse(render_instant(fire.at), fire.clock_change)
                for fire in fires
                if fire.clock_change is not None
            ],
            warnings=[*when.warnings, *list_dst_warnings(when.rule)],
            normalized=or_unset(when.normalized),
            every=duration_or_unset(when.every_us),
        )
