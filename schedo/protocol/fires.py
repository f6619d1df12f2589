"""The fires of a schedule in a range of time: the parameters and the response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core import limits
from schedo.core.fires import ScheduleFire
from schedo.core.model import Schedule
from schedo.protocol.fields import DurationText, Instant, duration_or_unset, or_unset
from schedo.protocol.operation import Operation
from schedo.protocol.query import Values, bad_parameter, read_instant
from schedo.protocol.times import render_instant

RANGE_US_MAX = 366 * limits.DAY


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
        return cls(first, last)


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


OPERATIONS = (
    Operation(
        "list_schedule_fires",
        "GET /v1/schedules/{name}/fires",
        "List when the schedule fires in a range of time, with jitter and clock changes.",
        {200: FiresResponse},
        query=("from", "to"),
    ),
)
