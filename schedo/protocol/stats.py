"""The response of GET /v1/stats: what has ended over hours and days."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from schedo.protocol.fields import Instant
from schedo.protocol.operation import Operation


class TimesResponse(Struct, forbid_unknown_fields=True):
    """How long something took in microseconds, within `relative_error`."""

    count: Annotated[int, Meta(description="Of how many attempts.")]
    p50_us: Annotated[int, Meta(description="Half of them took no longer.")]
    p90_us: Annotated[int, Meta(description="90 % of them took no longer.")]
    p99_us: Annotated[int, Meta(description="99 % of them took no longer.")]
    max_us: Annotated[int, Meta(description="None of them took longer.")]


class EndsResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """The jobs and attempts that ended in a time."""

    completed: Annotated[int, Meta(description="Jobs that completed.")]
    failed: Annotated[int, Meta(description="Jobs that failed in the end.")]
    cancelled: Annotated[int, Meta(description="Jobs that were cancelled.")]
    expired: Annotated[int, Meta(description="Jobs that expired before they ran.")]
    retried: Annotated[
        int, Meta(description="Attempts that failed or were lost, and after which the job went on.")
    ]
    failed_share: Annotated[
        float | None,
        Meta(description="The share of the failed jobs among those that completed or failed."),
    ]
    run: Annotated[
        TimesResponse | None, Meta(description="From the start of an attempt to its end.")
    ]
    lateness: Annotated[
        TimesResponse | None,
        Meta(description="From when an attempt was due to its start, whatever it waited for."),
    ]


class StatsPoint(EndsResponse):
    """What ended in one hour or day."""

    at: Annotated[Instant, Meta(description="When the hour or the day began.")]


class StatsItem(EndsResponse):
    """What ended of one task, queue or schedule."""

    name: Annotated[
        str, Meta(description="The task, queue or schedule; (other): those without a place.")
    ]
    points: Annotated[
        list[StatsPoint] | UnsetType,
        Meta(description="With `per`: the hours or days in which something ended, oldest first."),
    ] = UNSET


class StatsResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """What ended, by task, queue or schedule; those with the most ended jobs come first."""

    by: Annotated[Literal["task", "queue", "schedule"], Meta(description="What the items are.")]
    since: Annotated[
        Instant, Meta(description="The begin: that of the hour or day which has the wanted one.")
    ]
    until: Annotated[Instant, Meta(description="The end.")]
    relative_error: Annotated[
        float, Meta(description="How far a time from 0.1 ms to a day may be from the true one.")
    ]
    total: Annotated[EndsResponse, Meta(description="All items together, also those left out.")]
    points: Annotated[
        list[StatsPoint] | UnsetType,
        Meta(description="With `per`: all items together, also those left out, oldest first."),
    ] = UNSET
    items: list[StatsItem]
    has_more: Annotated[bool, Meta(description="There are more items than `limit`.")]
    per: Annotated[Literal["hour", "day"] | UnsetType, Meta(description="How long a point is.")] = (
        UNSET
    )


OPERATIONS = (
    Operation(
        "get_stats",
        "GET /v1/stats",
        "What ended in hours and days, by task, queue or schedule: counts, run times, lateness.",
        {200: StatsResponse},
        query=("by", "since", "until", "per", "name", "exact_name", "limit"),
    ),
)
