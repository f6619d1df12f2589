"""The summary of an engine: the verdict and the figures that a page shows first.

All of it is in memory and bounded, so that it can be read often: counts are kept, never counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from schedo.core.expectations import ExpectationState
from schedo.core.lateness import START_KINDS, Budget, count_within, quantile_us
from schedo.core.limits import SECOND
from schedo.core.series import COUNTS, lateness_of
from schedo.core.states import State
from schedo.core.stats import WaitingJob
from schedo.core.verdict import Situation, Verdict, judge
from schedo.core.worker_messages import WorkerStatus
from schedo.engine.call_results import QueueStatus, describe_pauses
from schedo.engine.gauges import describe_queue
from schedo.engine.loop import EngineLoop
from schedo.engine.metrics import OTHER_QUEUES
from schedo.engine.series import RECENT_SECONDS, Recorder

QUEUES_MAX = 64
WORKERS_MAX = 64
RUNS_MAX = 256
LONG_US = 5 * SECOND  # a due job that waits longer is named, with the reason
LONG_MAX = 8


class Lateness(NamedTuple):
    """The starts of one kind in the last five minutes and in the last day."""

    recent: Budget
    day: Budget
    p50_us: int | None  # of the last five minutes
    p99_us: int | None


class Summary(NamedTuple):
    """An engine at one moment."""

    verdict: Verdict
    lateness: Mapping[str, Lateness]
    recent: Mapping[str, int]  # COUNTS of the last five minutes
    recent_s: int  # for how much of them the server has run
    quarter: Mapping[str, int]  # COUNTS of the last 15 minutes
    day: Mapping[str, int]  # COUNTS of the last 24 hours
    waiting: Mapping[State, int] | None  # None: the store still counts
    slots: int
    running: int
    queues: Sequence[QueueStatus]  # QUEUES_MAX at most
    has_more_queues: bool
    workers: Sequence[WorkerStatus]  # WORKERS_MAX at most
    has_more_workers: bool
    long_waits: Sequence[WaitingJob]  # LONG_MAX at most


def read_summary(loop: EngineLoop, series: Recorder, objective_us: int) -> Summary:
    """Return the summary; `objective_us` is one of the bounds of the histograms."""
    lateness = _read_lateness(series, objective_us)
    scheduler, now = loop.scheduler, loop.clock.now()
    is_open = loop.failure is None
    slots, running = scheduler.slots() if is_open else (0, 0)
    waiting = scheduler.waiting if is_open and scheduler.waiting.is_complete else None
    queues = _read_queues(loop) if is_open else []
    workers = scheduler.worker_statuses(now, WORKERS_MAX + 1, RUNS_MAX) if is_open else []
    quarter = _by_name(series.seconds.sums)
    situation = Situation(
        reasons=loop.not_ready_reasons(),
        pauses=describe_pauses(scheduler.pauses()) if is_open else "",
        objective_us=objective_us,
        recent={kind: each.recent for kind, each in lateness.items()},
        unserved=loop.unserved if is_open else {},
        due=waiting.by_state[State.QUEUED] if waiting is not None else 0,
        slots=slots,
        running=running,
        overdue=_find_overdue(loop) if is_open else (),
        failed=quarter["failed"],
    )
    return Summary(
        judge(situation),
        lateness,
        _by_name(series.seconds.recent_sums),
        min(RECENT_SECONDS, max(1, (now - loop.monitor.metrics.began_at) // SECOND)),
        quarter,
        _by_name(series.sums_of_day()),
        waiting.by_state.copy() if waiting is not None else None,
        slots,
        running,
        queues[:QUEUES_MAX],
        len(queues) > QUEUES_MAX,
        workers[:WORKERS_MAX],
        len(workers) > WORKERS_MAX,
        find_long_waits(loop) if is_open else [],
    )


def find_long_waits(loop: EngineLoop) -> list[WaitingJob]:
    """Return LONG_MAX jobs at most that have been due for LONG_US, the oldest first."""
    due_before = loop.clock.now() - LONG_US
    return loop.scheduler.find_waiting(due_before, LONG_MAX, loop.workers_elsewhere.find)


def _find_overdue(loop: EngineLoop) -> list[str]:
    expectations = loop.scheduler.expectations.all()
    return [each.name for each in expectations if each.state is ExpectationState.MISSED]


def _read_lateness(series: Recorder, objective_us: int) -> dict[str, Lateness]:
    recent, day = series.seconds.recent_sums, series.sums_of_day()
    found: dict[str, Lateness] = {}
    for kind in START_KINDS:
        counts = lateness_of(recent, kind)
        found[kind] = Lateness(
            count_within(counts, objective_us),
            count_within(lateness_of(day, kind), objective_us),
            quantile_us(counts, 0.5),
            quantile_us(counts, 0.99),
        )
    return found


def _read_queues(loop: EngineLoop) -> list[QueueStatus]:
    """Return QUEUES_MAX queues by name, and one more if there are more: the measured ones first."""
    waiting = loop.scheduler.waiting
    by_queue = waiting.by_queue if waiting.is_complete else {}
    measured = (name for name in loop.monitor.metrics.queues if name != OTHER_QUEUES)
    names: dict[str, None] = {}
    for name in chain(measured, by_queue, loop.scheduler.queue_names()):
        names[name] = None
        if len(names) > QUEUES_MAX:
            break
    return [describe_queue(loop, name, by_queue) for name in sorted(names)]


def _by_name(sums: Sequence[int]) -> dict[str, int]:
    return dict(zip(COUNTS, sums, strict=False))
