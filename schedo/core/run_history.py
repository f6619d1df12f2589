"""The history of a schedule's runs: how many ended in each state, and how the last ones ended.

The core reports each run that ends (`EndedRun`). The store adds it to the history of its schedule
in the transaction that ends the job, so the history is exact over crashes and no record of a
schedule is loaded for it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from schedo.core.limits import LAST_FAILURE_CHARACTERS_MAX, LAST_FAILURE_TYPE_CHARACTERS_MAX
from schedo.core.model import Failure, Job
from schedo.core.states import State


class EndedRun(NamedTuple):
    """A run that has ended. duration_us: of its last attempt; None if it ended without running.

    scheduled_for: the instant that it was made for.
    """

    schedule_id: int
    job_id: int
    state: State
    ended_at: int
    duration_us: int | None
    failure: Failure | None
    scheduled_for: int | None = None


class LastRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the last runs of a schedule; its job may be deleted."""

    job_id: int
    state: State
    ended_at: int
    duration_us: int | None = None
    scheduled_for: int | None = None


class RunHistory(msgspec.Struct, frozen=True):
    """The ends of a schedule's runs. A failed attempt that is retried is no end."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    failed_in_row: int = 0  # since the last completed run
    last_completed_at: int | None = None
    last_failed_at: int | None = None
    last_failed_job: int | None = None
    last_failure: Failure | None = None  # without its traceback
    last_runs: tuple[LastRun, ...] = ()  # oldest first, at most LAST_RUNS_MAX

    @property
    def median_run_us(self) -> int | None:
        """The median duration of those of the last runs that completed; None without any."""
        completed = sorted(
            run.duration_us
            for run in self.last_runs
            if run.state is State.COMPLETED and run.duration_us is not None
        )
        return completed[len(completed) // 2] if completed else None


NO_RUNS = RunHistory()


class ScheduleStatus(NamedTuple):
    """What monitoring shows of a schedule."""

    id: int
    name: str
    created_at: int
    is_paused: bool
    history: RunHistory


def end_run(job: Job, schedule_id: int, state: State, now: int) -> EndedRun:
    """Return the end of the run, whose job is still in the state before it."""
    began_at = job.started_at if job.state is State.RUNNING else None
    return EndedRun(
        schedule_id,
        job.id,
        state,
        now,
        None if began_at is None else max(0, now - began_at),
        _shorten(job.failure) if state is State.FAILED else None,
        job.scheduled_for,
    )


def _shorten(failure: Failure | None) -> Failure | None:
    if failure is None:
        return None
    return msgspec.structs.replace(
        failure,
        type=failure.type[:LAST_FAILURE_TYPE_CHARACTERS_MAX],
        message=failure.message[:LAST_FAILURE_CHARACTERS_MAX],
        traceback=None,
    )
