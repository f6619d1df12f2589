"""What `schedo top` shows, worked out from two readings of /metrics and the time between them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from schedo.client.messages import Record
from schedo.client.metrics import Buckets, Scrape
from schedo.core.limits import FIRES_SHOWN, SECOND
from schedo.protocol.times import parse_instant, render_instant

OUTCOMES = ("completed", "failed", "cancelled", "expired")
TROUBLES = ("failed", "timeout", "lost", "stale")  # of attempts
NEXT_FIRES = 5
SCHEDULES_MAX = 5_000  # looked at for them; a server works out about 10 in a millisecond


@dataclass(frozen=True, slots=True)
class Spread:
    """How a duration, in seconds, was spread over an interval; None where nothing happened."""

    p50: float | None
    p99: float | None
    per_s: float


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue."""

    name: str
    is_paused: bool
    running: int
    concurrency: int | None
    waiting: dict[str, int]
    delay: Spread
    commit_wait: Spread


@dataclass(frozen=True, slots=True)
class Figures:
    """One frame's worth of numbers; rates are per second of the interval."""

    version: str
    over_s: float  # how long the interval was
    is_ready: bool
    reasons: list[str]
    epoch: int
    up_s: float
    cpu_share: float
    rss_bytes: int
    open_fds: int
    store_bytes: int
    submitted_per_s: float
    started_per_s: float
    ended_per_s: dict[str, float]  # jobs by outcome
    troubles_per_s: dict[str, float]  # attempts by outcome
    lateness: Spread
    loop_lag: Spread
    loop_lag_worst_s: float
    commit: Spread
    commit_jobs: float | None
    uncommitted: int
    workers: int
    slots: int
    slots_busy: int
    windows: dict[str, int]
    queues: list[QueueFigures]
    fires: list[dict[str, str]]
    has_more_schedules: bool  # than were looked at for the fires

    def plain(self) -> dict[str, Any]:
        """Return it as JSON data; what lies behind the last bucket has no value there."""
        return asdict(self, dict_factory=_finite)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was asked of the server for one frame."""

    at_s: float  # of any clock that does not jump
    now_s: float  # since 1970
    scrape: Scrape
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Lists:
    """What the server listed, not necessarily for this frame."""

    queues: list[Record]
    schedules: list[Record]
    has_more_schedules: bool = False


def before_all(first: Reading) -> Reading:
    """Return the reading of the instant at which the server began, when all counters were 0."""
    up_s = _up_s(first)
    return Reading(first.at_s - up_s, first.now_s - up_s, Scrape({}), [])


def work_out(before: Reading, after: Reading, lists: Lists) -> Figures:
    """Return the figures of the time between two readings."""
    change = _Change(before.scrape, after.scrape, max(after.at_s - before.at_s, 1e-3))
    now = after.scrape
    rates = change.rates("schedo_attempts_ended_total", "outcome")
    waits = change.by_queue("schedo_commit_wait_seconds")
    return Figures(
        version=next(iter(now.by_label("schedo_info", "version")), "?"),
        over_s=after.at_s - before.at_s,
        is_ready=bool(now.value("schedo_ready")),
        reasons=after.reasons,
        epoch=int(now.value("schedo_epoch")),
        up_s=_up_s(after),
        cpu_share=change.rate("process_cpu_seconds_total"),
        rss_bytes=int(now.value("process_resident_memory_bytes")),
        open_fds=int(now.value("process_open_fds")),
        store_bytes=int(now.value("schedo_store_bytes")),
        submitted_per_s=sum(spread.per_s for spread in waits.values()),
        started_per_s=change.rate("schedo_attempts_started_total"),
        ended_per_s=_pick(change.rates("schedo_jobs_ended_total", "state"), OUTCOMES),
        troubles_per_s=_pick(rates, TROUBLES),
        lateness=change.spread("schedo_start_lateness_seconds"),
        loop_lag=change.spread("schedo_loop_lag_seconds"),
        loop_lag_worst_s=now.value("schedo_loop_lag_recent_seconds"),
        commit=change.spread("schedo_commit_seconds"),
        commit_jobs=change.buckets("schedo_commit_jobs").mean,
        uncommitted=int(now.value("schedo_uncommitted_jobs")),
        workers=int(now.value("schedo_workers")),
        slots=int(now.value("schedo_worker_slots")),
        slots_busy=int(now.value("schedo_worker_slots_busy")),
        windows={k: int(v) for k, v in now.by_label("schedo_window_entries", "window").items()},
        queues=_work_out_queues(now, change, lists.queues),
        fires=_next_fires(lists.schedules, round(after.now_s * SECOND)),
        has_more_schedules=lists.has_more_schedules,
    )


def _up_s(reading: Reading) -> float:
    return max(0.0, reading.now_s - reading.scrape.value("process_start_time_seconds"))


def _work_out_queues(now: Scrape, change: _Change, records: list[Record]) -> list[QueueFigures]:
    limits = {record["name"]: record.get("concurrency") for record in records}
    running = now.by_label("schedo_queue_running_jobs", "queue")
    paused = now.by_label("schedo_queue_paused", "queue")
    delays = change.by_queue("schedo_start_delay_seconds")
    waits = change.by_queue("schedo_commit_wait_seconds")
    nothing = Spread(None, None, 0.0)
    return [
        QueueFigures(
            name,
            bool(paused.get(name)),
            int(running.get(name, 0)),
            limits.get(name),
            {
                state: int(now.value("schedo_queue_waiting_jobs", queue=name, state=state))
                for state in ("queued", "scheduled", "retrying", "blocked")
            },
            delays.get(name, nothing),
            waits.get(name, nothing),
        )
        for name in sorted(running.keys() | delays.keys() | waits.keys())
    ]


def _next_fires(schedules: list[Record], now: int) -> list[dict[str, str]]:
    fires = [
        (at, record)
        for record in schedules
        if not record.get("paused") and (at := _next_fire(record.get("next_fires") or [], now))
    ]
    fires.sort(key=lambda fire: fire[0])  # all in UTC, so that text sorts as time
    return [
        {
            "at": at,
            "schedule": record["name"],
            "rule": str(record.get("cron") or record.get("every") or record.get("at") or ""),
            "task": record.get("task", ""),
        }
        for at, record in fires[:NEXT_FIRES]
    ]


def _next_fire(known: list[str], now: int) -> str | None:
    """Return the first instant that has not passed; None if there is no other.

    The list may be some time old. If it is full and all of it has passed, the schedule fires every
    few seconds and is taken to go on at the pace of its last two.
    """
    now_text = render_instant(now)
    ahead = next((at for at in known if at >= now_text), None)
    if ahead is None and len(known) >= FIRES_SHOWN:
        last = parse_instant(known[-1])
        pace = last - parse_instant(known[-2])
        return render_instant(now + (last - now) % pace)
    return ahead


class _Change:
    """What has changed between two scrapes."""

    def __init__(self, before: Scrape, after: Scrape, seconds: float) -> None:
        self._before = before
        self._after = after
        self._seconds = seconds

    def rate(self, name: str) -> float:
        return self._per_s(self._before.value(name), self._after.value(name))

    def rates(self, name: str, label: str) -> dict[str, float]:
        before = self._before.by_label(name, label)
        after = self._after.by_label(name, label)
        return {key: self._per_s(before.get(key, 0.0), value) for key, value in after.items()}

    def buckets(self, name: str, **labels: str) -> Buckets:
        return self._after.buckets(name, **labels).since(self._before.buckets(name, **labels))

    def spread(self, name: str, **labels: str) -> Spread:
        found = self.buckets(name, **labels)
        return Spread(found.quantile(0.5), found.quantile(0.99), found.count / self._seconds)

    def by_queue(self, name: str) -> dict[str, Spread]:
        queues = self._after.by_label(f"{name}_count", "queue")
        return {queue: self.spread(name, queue=queue) for queue in queues}

    def _per_s(self, before: float, after: float) -> float:
        """Return the rate of a counter; one that has fallen began anew with its server."""
        return (after - before if after >= before else after) / self._seconds


def _finite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: None if value == float("inf") else value for name, value in pairs}


def _pick(values: dict[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {name: values.get(name, 0.0) for name in names}
