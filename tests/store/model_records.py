"""How the model keeps and finds records: ended runs, outputs, jobs as a load returns them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from schedo.core import limits
from schedo.core.changes import Changes
from schedo.core.leases import CapturedOutput
from schedo.core.model import Job, Schedule
from schedo.core.run_history import NO_RUNS, EndedRun, LastRun, RunHistory
from schedo.core.states import FINAL, WAITING, State
from schedo.store.base import Retention, Waiting
from schedo.store.retention import RELEASE_AFTER_US, RUNS_LOOKED_AT_ONCE, kept_us
from schedo.store.sqlite.histories import runs_to_release

T = TypeVar("T")
R = TypeVar("R")


def add_runs(
    histories: dict[int, RunHistory], schedules: Collection[int], changes: Changes
) -> None:
    for run in changes.ended_runs:
        if run.schedule_id in schedules:
            _add_run(histories, run)


def _add_run(histories: dict[int, RunHistory], run: EndedRun) -> None:
    history = histories.get(run.schedule_id, NO_RUNS)
    last = LastRun(run.job_id, run.state, run.ended_at, run.duration_us, run.scheduled_for)
    changed: dict[str, Any] = {
        "last_runs": (*history.last_runs, last)[-limits.LAST_RUNS_MAX :],
        run.state.value: getattr(history, run.state.value) + 1,
    }
    if run.state is State.COMPLETED:
        changed |= {"failed_in_row": 0, "last_completed_at": run.ended_at}
    if run.state is State.FAILED:
        changed |= {
            "failed_in_row": history.failed_in_row + 1,
            "last_failed_at": run.ended_at,
            "last_failed_job": run.job_id,
            "last_failure": run.failure,
        }
    histories[run.schedule_id] = msgspec.structs.replace(history, **changed)


def trim(outputs: dict[tuple[int, str], CapturedOutput]) -> None:
    def size(kept: CapturedOutput) -> int:
        return len(kept.head) + len(kept.tail)

    while sum(map(size, outputs.values())) > limits.OUTPUTS_BYTES_MAX:
        oldest = min(attempt for attempt, _ in outputs)
        for key in [key for key in outputs if key[0] == oldest]:
            del outputs[key]


def put_or_delete(records: dict[T, R], changes: Mapping[T, R | None]) -> None:
    for key, record in changes.items():
        records.pop(key, None)
        if record is not None:
            records[key] = record


def loaded(job: Job) -> Job:
    found = job.copy()
    if found.payload is not None and len(found.payload) > limits.PAYLOAD_INLINE_BYTES_MAX:
        found.payload = None
    return found


def is_expired(job: Job, now: int) -> bool:
    is_waiting = job.state not in FINAL and job.state is not State.RUNNING
    return is_waiting and job.expires_at is not None and job.expires_at <= now


def count_waiting(jobs: Iterable[Job]) -> Waiting:
    """Return the numbers of the waiting jobs by queue and state."""
    counts: Waiting = {}
    for job in jobs:
        if job.state in WAITING:
            by_state = counts.setdefault(job.queue, {})
            by_state[job.state] = by_state.get(job.state, 0) + 1
    return counts


def with_active(schedule: Schedule, jobs: Iterable[Job]) -> Schedule:
    """Return a copy of the schedule with its unfinished jobs."""
    found = schedule.copy()
    unfinished = [
        job
        for job in sorted(jobs, key=lambda job: job.id)
        if job.schedule_id == schedule.id and job.state not in FINAL
    ]
    found.active = [job.id for job in unfinished[: limits.ACTIVE_RUNS_KNOWN_MAX]]
    blocked = [job.id for job in unfinished if job.state is State.BLOCKED]
    found.blocked = max(blocked, default=None)
    return found


class RunReleases:
    """Which ended runs of schedules the general retention concerns."""

    def __init__(self) -> None:
        self._due: dict[int, tuple[int, int]] = {}  # by schedule: when runs ended, first and last
        self.released: set[int] = set()

    def note(self, changes: Changes) -> None:
        for schedule_id, at, _ in runs_to_release(changes):
            first, _ = self._due.get(schedule_id, (at, at))
            self._due[schedule_id] = (first, at)

    def release(
        self, jobs: Mapping[int, Job], schedules: Collection[int], now: int, kept: int, limit: int
    ) -> int:
        """Release runs as one step of pruning does; return the effort."""
        until, effort = now - RELEASE_AFTER_US, 0
        due = sorted((at, ident) for ident, (at, _) in self._due.items() if at <= until)
        for _, schedule_id in due[: max(1, limit // RUNS_LOOKED_AT_ONCE)]:
            room = limit - effort
            if room <= 0:
                break
            skipped = kept if schedule_id in schedules else 0
            ended = (j.id for j in jobs.values() if j.schedule_id == schedule_id and j.is_final)
            held = sorted((job_id for job_id in ended if job_id not in self.released), reverse=True)
            found = held[skipped : skipped + room]
            self.released.update(found)
            if len(found) < room:
                last = self._due.pop(schedule_id)[1]
                if last > until:
                    self._due[schedule_id] = (last, last)
            effort += len(found) + 1 + skipped // RUNS_LOOKED_AT_ONCE
        return effort


def prunable(
    jobs: Mapping[int, Job], now: int, retention: Retention, released: Collection[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield the jobs that may be deleted, with the order of their deletion."""
    kept = kept_us(retention)
    order = list(kept)
    for job in jobs.values():
        if job.state not in kept or job.ended_at is None:
            continue
        if job.kept_until is not None:
            if job.kept_until <= now:
                yield len(order), job.kept_until, job.id
        elif job.schedule_id is not None and job.id not in released:
            continue
        elif job.ended_at <= now - kept[job.state]:
            yield order.index(job.state), job.ended_at, job.id
