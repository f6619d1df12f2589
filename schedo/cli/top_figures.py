"""Computes the figures of `schedo top` from two readings of /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from schedo.cli.run_history import failed_in_row
from schedo.client.messages import Record
from schedo.client.metrics import Buckets, Scrape
from schedo.core.lateness import START_KINDS
from schedo.core.limits import FIRES_SHOWN, SECOND
from schedo.protocol.times import parse_instant, render_instant

OUTCOMES = ("completed", "failed", "cancelled", "expired")
UNSUCCESSFUL = ("failed", "timeout", "lost", "stale")  # of attempts
NEXT_FIRES = 5
FAILING_MAX = 5  # schedules that are named
SCHEDULES_MAX = 5_000  # read to find the next fires; a server renders about 10 in a millisecond


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentiles of a duration, in seconds; None if nothing happened in the interval."""

    p50: float | None
    p99: float | None
    per_s: float


@dataclass(frozen=True, slots=True)
class QueueStats:
    """The figures of one queue."""

    name: str
    is_paused: bool
    running: int
    concurrency: int | None
    waiting: dict[str, int]
    delay: Distribution
    commit_wait: Distribution


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one frame; rates are per second of the interval."""

    version: str
    interval_s: float
    is_ready: bool
    reasons: list[str]
    epoch: int
    uptime_s: float
    cpu_share: float
    rss_bytes: int
    open_fds: int
    store_bytes: int
    submitted_per_s: float
    started_per_s: float
    ended_per_s: dict[str, float]  # jobs by outcome
    unsuccessful_per_s: dict[str, float]  # attempts by outcome
    lateness: dict[str, Distribution]  # of timers, and of jobs that were due at once
    loop_lag: Distribution
    loop_lag_worst_s: float
    commit: Distribution
    commit_jobs: float | None
    uncommitted: int
    workers: int
    slots: int
    slots_busy: int
    in_memory: dict[str, int]  # entries of each paged index
    queues: list[QueueStats]
    fires: list[dict[str, str]]
    has_more_schedules: bool  # more than SCHEDULES_MAX, so `fires` may be incomplete
    failing: dict[str, int]  # schedules, and how many runs have failed since the last completed one

    def plain(self) -> dict[str, Any]:
        """Return the figures as JSON data; a duration above the last bucket's bound is None."""
        return asdict(self, dict_factory=_finite)


@dataclass(frozen=True, slots=True)
class Reading:
    """The data that the server gave for one frame."""

    at_s: float  # of a monotonic clock
    now_s: float  # since 1970
    scrape: Scrape
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Lists:
    """Queues and schedules, which may be older than the frame."""

    queues: list[Record]
    schedules: list[Record]
    has_more_schedules: bool = False
    failing: Sequence[Record] = ()  # some of the schedules whose last run has failed


def reading_at_start(first: Reading) -> Reading:
    """Return a reading as of the start of the server, when all counters were 0."""
    uptime_s = _uptime_s(first)
    return Reading(first.at_s - uptime_s, first.now_s - uptime_s, Scrape({}), [])


def compute_figures(before: Reading, after: Reading, lists: Lists) -> Figures:
    """Return the figures of the interval between two readings."""
    change = _Change(before.scrape, after.scrape, max(after.at_s - before.at_s, 1e-3))
    now = after.scrape
    rates = change.rates("schedo_attempts_ended_total", "outcome")
    waits = change.by_queue("schedo_commit_wait_seconds")
    return Figures(
        version=next(iter(now.by_label("schedo_info", "version")), "?"),
        interval_s=after.at_s - before.at_s,
        is_ready=bool(now.value("schedo_ready")),
        reasons=after.reasons,
        epoch=int(now.value("schedo_epoch")),
        uptime_s=_uptime_s(after),
        cpu_share=change.rate("process_cpu_seconds_total"),
        rss_bytes=int(now.value("process_resident_memory_bytes")),
        open_fds=int(now.value("process_open_fds")),
        store_bytes=int(now.value("schedo_store_bytes")),
        submitted_per_s=sum(spread.per_s for spread in waits.values()),
        started_per_s=change.rate("schedo_attempts_started_total"),
        ended_per_s=_pick(change.rates("schedo_jobs_ended_total", "state"), OUTCOMES),
        unsuccessful_per_s=_pick(rates, UNSUCCESSFUL),
        lateness={
            kind: change.spread("schedo_start_lateness_seconds", kind=kind) for kind in START_KINDS
        },
        loop_lag=change.spread("schedo_loop_lag_seconds"),
        loop_lag_worst_s=now.value("schedo_loop_lag_recent_seconds"),
        commit=change.spread("schedo_commit_seconds"),
        commit_jobs=change.buckets("schedo_commit_jobs").mean,
        uncommitted=int(now.value("schedo_uncommitted_jobs")),
        workers=int(now.value("schedo_workers")),
        slots=int(now.value("schedo_worker_slots")),
        slots_busy=int(now.value("schedo_worker_slots_busy")),
        in_memory={k: int(v) for k, v in now.by_label("schedo_index_entries", "index").items()},
        queues=_compute_queues(now, change, lists.queues),
        fires=_next_fires(lists.schedules, round(after.now_s * SECOND)),
        has_more_schedules=lists.has_more_schedules,
        failing={each["name"]: failed_in_row(each) for each in lists.failing},
    )


def _uptime_s(reading: Reading) -> float:
    return max(0.0, reading.now_s - reading.scrape.value("process_start_time_seconds"))


def _compute_queues(now: Scrape, change: _Change, records: list[Record]) -> list[QueueStats]:
    limits = {record["name"]: record.get("concurrency") for record in records}
    running = now.by_label("schedo_queue_running_jobs", "queue")
    paused = now.by_label("schedo_queue_paused", "queue")
    delays = change.by_queue("schedo_start_delay_seconds")
    waits = change.by_queue("schedo_commit_wait_seconds")
    nothing = Distribution(None, None, 0.0)
    return [
        QueueStats(
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
    """Return the first instant that has not passed, or None.

    The list may be some seconds old. If it is full and all of it has passed, the schedule fires
    every few seconds; then the distance of its last two instants gives the next one.
    """
    now_text = render_instant(now)
    ahead = next((at for at in known if at >= now_text), None)
    if ahead is None and len(known) >= FIRES_SHOWN:
        last = parse_instant(known[-1])
        pace = last - parse_instant(known[-2])
        return render_instant(now + (last - now) % pace)
    return ahead


class _Change:
    """The change from one scrape to the next."""

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

    def spread(self, name: str, **labels: str) -> Distribution:
        found = self.buckets(name, **labels)
        return Distribution(found.quantile(0.5), found.quantile(0.99), found.count / self._seconds)

    def by_queue(self, name: str) -> dict[str, Distribution]:
        queues = self._after.by_label(f"{name}_count", "queue")
        return {queue: self.spread(name, queue=queue) for queue in queues}

    def _per_s(self, before: float, after: float) -> float:
        """Return the rate of a counter; a counter that fell began at 0 with a new server."""
        return (after - before if after >= before else after) / self._seconds


def _finite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: None if value == float("inf") else value for name, value in pairs}


def _pick(values: dict[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {name: values.get(name, 0.0) for name in names}
