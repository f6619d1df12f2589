"""The figures over time: the response of GET /v1/timeseries and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from msgspec import UNSET, Struct, UnsetType

from schedo.core import series
from schedo.core.lateness import DURATION_BOUNDS_US, START_KINDS
from schedo.core.limits import MINUTE, SECOND
from schedo.core.series import Row
from schedo.protocol.fields import Instant
from schedo.protocol.operation import Operation
from schedo.protocol.query import Values, bad_parameter, read_choice, read_name, read_number
from schedo.protocol.times import render_instant

T = TypeVar("T")

POINTS_MAX = 300
LATENESS = "lateness"
FIGURES = tuple(name for name in (*series.COUNTS, *series.GAUGES, LATENESS) if name != "commit_us")
QUEUE_FIGURES = series.QUEUE_FIGURES


class Window(NamedTuple):
    """A window: how many rows of which length it has."""

    rows: int
    row_us: int


WINDOWS = {"15m": Window(900, SECOND), "24h": Window(1_440, MINUTE)}


class TimeseriesResponse(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Figures of intervals of `step` seconds, the oldest first; null: the server did not run.

    The last interval is the one that has not ended yet. Counts are those of the interval, gauges
    its largest value.
    """

    window: str
    step: int
    start: Instant
    now: Instant
    figures: dict[str, list[int | None]]
    lateness: dict[str, list[list[int] | None]] | UnsetType = UNSET
    bounds: list[float] | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    queues: list[str] | UnsetType = UNSET


class TimeseriesRequest(NamedTuple):
    """What the parameters ask for."""

    name: str
    window: Window
    names: Collection[str]
    points: int
    queue: str | None

    @classmethod
    def read(cls, values: Values) -> TimeseriesRequest:
        """Return the checked parameters; raise BadRequest."""
        name = read_choice(values, "window", WINDOWS) or "15m"
        points = read_number(values, "points", 1, POINTS_MAX) or POINTS_MAX
        queue = read_name(values, "queue")
        if queue is not None and name != "24h":
            raise bad_parameter("queue", "queues are measured by the minute; add window=24h")
        known = FIGURES if queue is None else QUEUE_FIGURES
        return cls(name, WINDOWS[name], _read_names(values, known), points, queue)

    def place(self, now: int) -> tuple[int, int, int]:
        """Return the first row's number, the rows of a point, and the number of points.

        Points begin at multiples of their length, so that those that have ended do not change.
        """
        width = -(-self.window.rows // self.points)
        points = -(-self.window.rows // width)
        last = now // self.window.row_us // width
        return (last - points + 1) * width, width, points


def _read_names(values: Values, known: Sequence[str]) -> Collection[str]:
    text = values.get("names")
    if text is None:
        return known
    names = text.split(",")
    for name in names:
        if name not in known:
            detail = f"{name[:40]!r} is not measured here; known are: {', '.join(known)}"
            raise bad_parameter("names", detail)
    return frozenset(names)


def render_timeseries(
    request: TimeseriesRequest,
    rows: Sequence[Row | None],
    place: int | None,
    queues: Sequence[str],
    now: int,
) -> TimeseriesResponse:
    """Return the response; place: of the queue among the rows' queues."""
    first, width, _ = request.place(now)
    response = TimeseriesResponse(
        window=request.name,
        step=width * request.window.row_us // SECOND,
        start=render_instant(first * request.window.row_us),
        now=render_instant(now),
        figures={},
    )
    if place is not None:
        assert request.queue is not None
        response.queue = request.queue
        by_queue = [None if row is None else row.queue(place) for row in rows]
        response.figures = _pick(request.names, QUEUE_FIGURES, by_queue, lambda figures: figures)
        return response
    response.queues = list(queues)
    counts, gauges = [*series.COUNTS], [*series.GAUGES]
    response.figures = _pick(request.names, counts, rows, lambda row: row.counts)
    response.figures |= _pick(request.names, gauges, rows, lambda row: row.gauges)
    if LATENESS in request.names:
        response.bounds = [bound / SECOND for bound in DURATION_BOUNDS_US]
        response.lateness = {
            kind: [None if row is None else list(row.lateness(kind)) for row in rows]
            for kind in START_KINDS
        }
    return response


def _pick(
    names: Collection[str],
    known: Sequence[str],
    rows: Sequence[T | None],
    read: Callable[[T], Sequence[int]],
) -> dict[str, list[int | None]]:
    return {
        name: [None if row is None else _known(read(row)[place]) for row in rows]
        for place, name in enumerate(known)
        if name in names
    }


def _known(value: int) -> int | None:
    return None if value == series.UNKNOWN else value


OPERATIONS = (
    Operation(
        "get_timeseries",
        "GET /v1/timeseries",
        "Figures over the last 15 minutes or 24 hours: counts, gauges and lateness by bucket.",
        {200: TimeseriesResponse},
        query=("window", "points", "names", "queue"),
    ),
)
