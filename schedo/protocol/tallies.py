"""What a request for stats asks for, and how tallies become its response.

It is imported with the first of these requests.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET

from schedo.core.limits import DAY, HOUR
from schedo.core.sketch import RELATIVE_ERROR, find_quantiles
from schedo.core.tallies import (
    HOURS_KEPT,
    OTHER,
    Dimension,
    Period,
    Tallies,
    Tally,
    TallyFilter,
    add_tallies,
)
from schedo.protocol.query import (
    Values,
    bad_parameter,
    read_choice,
    read_instant,
    read_limit,
    read_text,
)
from schedo.protocol.stats import (
    EndsResponse,
    StatsItem,
    StatsPoint,
    StatsResponse,
    TimesResponse,
)
from schedo.protocol.times import render_instant

POINTS_MAX = 10_000
TEXT_CHARACTERS_MAX = 128
SINCE_DEFAULT_US = 7 * DAY
_SHARES = (0.5, 0.9, 0.99, 1.0)


class StatsRequest(NamedTuple):
    """What the parameters ask for."""

    which: TallyFilter
    limit: int

    @classmethod
    def read(cls, values: Values, now: int) -> StatsRequest:
        """Return the checked parameters; raise BadRequest."""
        by = Dimension(read_choice(values, "by", [*Dimension]) or Dimension.TASK)
        wanted = read_choice(values, "per", [*Period])
        per = None if wanted is None else Period(wanted)
        since, until = read_instant(values, "since"), read_instant(values, "until")
        since = now - SINCE_DEFAULT_US if since is None else since
        until = now + 1 if until is None else until
        if since >= until:
            raise bad_parameter("since", "this must be before the end (until, or now)")
        oldest = now - now % HOUR - (HOURS_KEPT - 1) * HOUR
        has_hours = since - since % HOUR >= oldest
        if per is Period.HOUR and not has_hours:
            raise bad_parameter("since", "hours are kept for 8 days; add per=day")
        step = HOUR if has_hours and per is not Period.DAY else DAY
        text = read_text(values, "name", TEXT_CHARACTERS_MAX) or ""
        name = read_text(values, "exact_name", TEXT_CHARACTERS_MAX)
        which = TallyFilter(by, since - since % step, until, per, text, name)
        return cls(which, _read_limit(values, which, now))


def _read_limit(values: Values, which: TallyFilter, now: int) -> int:
    limit = read_limit(values)
    if which.per is None:
        return limit
    points = -(-(min(which.end, now + 1) - which.start) // which.per.length_us)
    most = max(1, POINTS_MAX // max(1, points))
    if limit > most and "limit" in values:
        detail = f"this is at most {most} with {points} points for each; or leave out per"
        raise bad_parameter("limit", detail)
    return min(limit, most)


def render_stats(
    request: StatsRequest, parts: Mapping[int, Tallies]
) -> Generator[None, None, StatsResponse]:
    """Return the response in short steps; parts: by when each begins, as TallyFilter.per says."""
    which = request.which
    sums: Tallies = {}
    for tallies in parts.values():
        add_tallies(sums, tallies)
        yield
    total = _add_up(sums)
    yield
    points = []
    for at in sorted(parts) if which.per is not None else ():
        points.append(StatsPoint(at=render_instant(at), **_describe(_add_up(parts[at]))))
        yield
    ranked = sorted(sums, key=lambda name: (name == OTHER, -sums[name].ended, name))
    items = []
    for name in ranked[: request.limit]:
        item = StatsItem(name=name, **_describe(sums[name]))
        if which.per is not None:
            item.points = [
                StatsPoint(at=render_instant(at), **_describe(parts[at][name]))
                for at in sorted(parts)
                if name in parts[at]
            ]
        items.append(item)
        yield
    return StatsResponse(
        by=which.dimension.value,
        since=render_instant(which.start),
        until=render_instant(which.end),
        per=UNSET if which.per is None else which.per.value,
        points=UNSET if which.per is None else points,
        relative_error=RELATIVE_ERROR,
        total=EndsResponse(**_describe(total)),
        items=items,
        has_more=len(ranked) > request.limit,
    )


def _add_up(tallies: Tallies) -> Tally:
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    return total


def _describe(tally: Tally) -> dict[str, Any]:
    counts = tally.counts
    tried = counts["completed"] + counts["failed"]
    return {
        **counts,
        "failed_share": round(counts["failed"] / tried, 6) if tried else None,
        "run": _describe_times(tally.run),
        "lateness": _describe_times(tally.late),
    }


def _describe_times(sketch: Mapping[int, int]) -> TimesResponse | None:
    if not sketch:
        return None
    return TimesResponse(sum(sketch.values()), *find_quantiles(sketch, _SHARES))
