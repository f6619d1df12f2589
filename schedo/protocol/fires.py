"""The fires of one schedule, and of all, in a range of time: the parameters and the responses."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core import limits
from schedo.core.limits import SECOND
from schedo.core.model import Schedule
from schedo.protocol.cron import TOO_LATE, TogetherResponse, describe_rule
from schedo.protocol.fields import DurationText, Instant, Name, duration_or_unset, or_unset
from schedo.protocol.operation import Operation
from schedo.protocol.query import (
    LIMIT_MAX,
    Values,
    bad_parameter,
    read_duration,
    read_instant,
    read_number,
)
from schedo.protocol.times import render_duration, render_instant

if TYPE_CHECKING:  # few servers need these modules
    from schedo.core.fire_map import FireMap, RuleFires
    from schedo.core.fire_masks import Span
    from schedo.core.fires import ScheduleFire

RANGE_US_MAX = 366 * limits.DAY
HOURS_MAX = 168
HOURS_DEFAULT = 24
BUCKET_S_DEFAULT = 300
BUCKETS_MAX = 1_000
ITEMS_DEFAULT = 100


class FiresRequest(NamedTuple):
    """The range of time, both ends inclusive."""

    first: int
    last: int

    @classmethod
    def read(cls, values: Values, now: int) -> FiresRequest:
        """Return the checked range: by default the next 24 hours; raise BadRequest."""
        first = read_instant(values, "from")
        first = now if first is None else first
        last = read_instant(values, "to")
        last = first + limits.DAY if last is None else last
        if last < first:
            raise bad_parameter("to", "it is before `from`")
        if last - first > RANGE_US_MAX:
            raise bad_parameter("to", "it is at most 366 days after `from`")
        if first > limits.LISTED_FIRE_MAX:
            raise bad_parameter("from", TOO_LATE)
        return cls(first, min(last, limits.LISTED_FIRE_MAX))


class FireResponse(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One fire; its run is due `jitter` later. clock_change: how the zone's clock affects it."""

    at: Instant
    jitter: DurationText | UnsetType = UNSET
    clock_change: str | UnsetType = UNSET

    @classmethod
    def of(cls, fire: ScheduleFire) -> Self:
        jitter = duration_or_unset(fire.jitter_us or None)
        return cls(render_instant(fire.at), jitter, or_unset(fire.clock_change))


class FiresResponse(Struct, forbid_unknown_fields=True):
    """The first fires of the range, and how many it has, up to 10,000."""

    items: list[FireResponse]
    count: int
    tz: str
    paused: bool

    @classmethod
    def of(cls, schedule: Schedule, fires: Sequence[ScheduleFire], count: int) -> Self:
        items = [FireResponse.of(fire) for fire in fires]
        return cls(items, count, schedule.spec.rule.tz, schedule.paused)


class FireMapRequest(NamedTuple):
    """The range of time, the length of its buckets in seconds, and how many rules are shown."""

    span: Span
    width: int
    limit: int

    @classmethod
    def read(cls, values: Values, now: int) -> FireMapRequest:
        """Return the checked parameters; raise BadRequest. The range begins with a whole bucket."""
        hours = read_number(values, "hours", 1, HOURS_MAX) or HOURS_DEFAULT
        width_us = read_duration(values, "bucket")
        width = BUCKET_S_DEFAULT if width_us is None else width_us // SECOND
        seconds = hours * 3_600
        least = max(60, -(-seconds // BUCKETS_MAX))
        if (width_us or 0) % SECOND or not least <= width <= seconds:
            detail = f"this must be whole seconds, from {least}s to {hours}h"
            raise bad_parameter("bucket", detail)
        first = read_instant(values, "from")
        first = (now if first is None else first) // SECOND // width * width
        if first < 0 or (first + seconds) * SECOND > limits.LISTED_FIRE_MAX:
            raise bad_parameter("from", TOO_LATE)
        from schedo.core.fire_masks import Span

        limit = read_number(values, "limit", 1, LIMIT_MAX) or ITEMS_DEFAULT
        return cls(Span(first, -(-seconds // width) * width), width, limit)


class MovedFireResponse(Struct, forbid_unknown_fields=True):
    """A fire that a change of the zone's clock moves or repeats, and how."""

    at: Instant
    clock_change: str


class RuleFiresResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fires of the schedules with one rule.

    names: of the first 20. seconds: the fires, in seconds after `from`; if there are more than 300,
    `counts` says how many each bucket has. Each run is due up to `jitter` later.
    """

    names: list[Name]
    schedules: int
    rule: str
    tz: str
    count: int
    jitter: DurationText | UnsetType = UNSET
    seconds: list[int | float] | UnsetType = UNSET
    counts: list[int] | UnsetType = UNSET
    clock_changes: list[MovedFireResponse] | UnsetType = UNSET

    @classmethod
    def of(cls, fires: RuleFires, first: int) -> Self:
        rule, moved = fires.rule, fires.clock_changes
        return cls(
            names=fires.users.names,
            schedules=fires.users.count,
            rule=describe_rule(rule),
            tz=rule.tz,
            count=fires.total,
            jitter=duration_or_unset(rule.jitter_us or None),
            seconds=UNSET if fires.counts else [_after(at, first) for at in fires.instants],
            counts=or_unset(list(fires.counts) or None),
            clock_changes=or_unset(
                [MovedFireResponse(render_instant(at), text) for at, text in moved] or None
            ),
        )


class FireMapResponse(Struct, forbid_unknown_fields=True, kw_only=True, rename={"first": "from"}):
    """The fires of all schedules that are not paused.

    together: of each bucket, the most schedules that fire in the same second, and together_at: in
    which second after `from`. busiest: up to five such seconds. items: rules in the order of their
    first fire; has_more: there are others. schedules: how many were looked at, 20,000 at most.
    """

    first: Instant
    to: Instant
    bucket: DurationText
    computed_at: Instant
    schedules: int
    complete: bool
    together: list[int]
    together_at: list[int]
    busiest: list[TogetherResponse]
    items: list[RuleFiresResponse]
    has_more: bool

    @classmethod
    def of(
        cls, request: FireMapRequest, found: FireMap, now: int, *, schedules: int, complete: bool
    ) -> Generator[None, None, Self]:
        """Return the response, in short steps."""
        span, items = request.span, []
        for fires in found.fires:
            items.append(RuleFiresResponse.of(fires, span.first))
            yield
        return cls(
            first=render_instant(span.first * SECOND),
            to=render_instant(span.end * SECOND),
            bucket=render_duration(request.width * SECOND),
            computed_at=render_instant(now),
            schedules=schedules,
            complete=complete,
            together=[count for count, _ in found.most],
            together_at=[second for _, second in found.most],
            busiest=[TogetherResponse.of(each) for each in found.busiest],
            items=items,
            has_more=found.has_more,
        )


def _after(at: int, first: int) -> int | float:
    """Return the seconds from a second to an instant."""
    passed = at - first * SECOND
    return passed / SECOND if passed % SECOND else passed // SECOND


OPERATIONS = (
    Operation(
        "list_fires",
        "GET /v1/fires",
        "When all schedules fire in a range of time, and how many of them in the same second.",
        {200: FireMapResponse},
        query=("from", "hours", "bucket", "limit"),
    ),
    Operation(
        "list_schedule_fires",
        "GET /v1/schedules/{name}/fires",
        "List when the schedule fires in a range of time, with jitter and clock changes.",
        {200: FiresResponse},
        query=("from", "to"),
    ),
)
