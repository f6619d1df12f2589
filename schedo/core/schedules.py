"""The fires of schedules: when each one fires, which run a fire makes, and how runs overlap.

A fire moves the schedule's watermark and makes its job in the same commit, so an instant is neither
fired twice nor lost. Whether a run overlaps is derived from the schedule's jobs that have not
ended, never from a flag.
"""

from __future__ import annotations

from collections.abc import Callable

from schedo.core.blocked_runs import resolve
from schedo.core.catchup import Firing, plan_fires
from schedo.core.commands import CancelRun, GiveFollowUp, UnblockNext, UnblockRun
from schedo.core.expectation_table import Expectations
from schedo.core.ids import IdSource
from schedo.core.job_table import JobTable
from schedo.core.limits import ACTIVE_RUNS_KNOWN_MAX
from schedo.core.loads import BlockedRun, LoadBlocked
from schedo.core.model import (
    Catchup,
    Decision,
    DecisionRecord,
    Job,
    Overlap,
    Schedule,
    ScheduleSpec,
    Trigger,
)
from schedo.core.runs import ScheduledRun, new_run
from schedo.core.schedule_table import ScheduleTable
from schedo.core.states import State


class Schedules:
    """Fires schedules, and lets their runs wait for each other."""

    def __init__(
        self,
        table: ScheduleTable,
        jobs: JobTable,
        ids: IdSource,
        make_run: Callable[[ScheduledRun, int], Job],
        follow_up: GiveFollowUp,
        expectations: Expectations,
    ) -> None:
        self._table = table
        self._jobs = jobs
        self._ids = ids
        self._make_run = make_run
        self._follow_up = follow_up
        self._expectations = expectations

    def take_blocked(
        self, load: LoadBlocked, page: list[BlockedRun], now: int
    ) -> LoadBlocked | None:
        """Unblock, cancel or keep the blocked runs of a page; return the load of the next page."""
        for job_id, ident, loaded in page:
            job = self._jobs.find(job_id)
            if job is not None and job.state is not State.BLOCKED:
                continue
            schedule = self._table.current(ident, loaded)
            if schedule is not None and schedule is loaded:
                self._table.review((schedule,))
            stays = resolve(schedule, job_id, self._follow_up, now)
            if schedule is not None and schedule.blocked in (None, job_id):
                self._table.set_blocked(schedule, job_id if stays else None)
        return self._table.blocked.restore_next(load, page)

    # Fires.

    def fire_due(self, now: int, limit: int) -> None:
        """Fire up to `limit` due schedules."""
        for ident in self._table.order.pop_due(now, limit):
            schedule = self._table.find(ident)
            assert schedule is not None, "what the order holds is in memory"
            if schedule.next_fire_at is not None and schedule.next_fire_at > now:
                self._table.arm(schedule)  # the clock was set back
                continue
            plan = plan_fires(schedule, now)
            # A later cron rule begins after the instants that are decided here.
            self._ids.reach(now)
            self._jobs.changes.decisions.extend(plan.decisions)
            schedule.missed += sum(d.count for d in plan.decisions if d.decision is Decision.MISSED)
            for fire in plan.fires:
                self.run(schedule, fire, _overlap_of(schedule.spec, fire), now)
            schedule.evaluated_through = now
            schedule.next_fire_at = plan.next_fire_at
            self._expectations.align(schedule)
            self._table.mark_dirty(schedule, fired_at=now)

    def run(
        self, schedule: Schedule, fire: Firing, overlap: Overlap, now: int
    ) -> tuple[int | None, int | None]:
        """Make the run if overlap allows; return its job's id, or the run that prevents it."""
        busy = schedule.active[0] if schedule.active else None
        is_blocked = False
        if busy is not None and overlap is not Overlap.ALLOW:
            if overlap is Overlap.CANCEL_OTHER:
                for other in list(schedule.active):
                    self._follow_up(CancelRun(other), now)
                is_blocked = bool(schedule.active)  # running attempts must stop first
            elif overlap is Overlap.SKIP or schedule.blocked is not None:
                schedule.overlap_skipped += 1
                self._decide(schedule, fire, Decision.SKIPPED_OVERLAP, None, now)
                return None, busy
            else:
                is_blocked = True
        job = self._make_run(new_run(schedule, fire, is_blocked), now)
        if len(schedule.active) < ACTIVE_RUNS_KNOWN_MAX:
            schedule.active.append(job.id)
        schedule.last_job_id = job.id
        if is_blocked:
            self._table.set_blocked(schedule, job.id)
            schedule.buffered += 1
        schedule.fired += 1
        schedule.last_fired_at = fire.scheduled_for
        decision = Decision.BUFFERED if is_blocked else _DECISIONS[fire.trigger]
        self._decide(schedule, fire, decision, job.id, now)
        return job.id, None

    # The end of a run.

    def job_ended(self, job: Job, now: int) -> None:
        """Record the end of a run, and unblock the run that waits for it."""
        ident = job.schedule_id
        assert ident is not None, "the job is a run of a schedule"
        schedule = self._table.find(ident)
        if schedule is None:
            if self._table.blocked.may_have(ident):
                self._follow_up(UnblockNext(ident), now)
            return
        if job.id in schedule.active:
            schedule.active.remove(job.id)
        if schedule.blocked == job.id:
            self._table.set_blocked(schedule, None)
        self._unblock(schedule, now)

    def run_requeued(self, job: Job) -> None:
        """Record that a run is queued: it is active, and blocked no longer."""
        schedule = self._table.find(job.schedule_id or 0)
        if schedule is None:
            return
        if job.id not in schedule.active:
            schedule.active.append(job.id)
        if schedule.blocked == job.id:
            self._table.set_blocked(schedule, None)

    def unblock_next(self, schedule: Schedule, now: int) -> None:
        """Unblock the blocked run of the schedule if no other run of it is active."""
        schedule = self._table.track(schedule)
        self._unblock(schedule, now)
        self._table.arm(schedule)

    def _unblock(self, schedule: Schedule, now: int) -> None:
        blocked = schedule.blocked
        if all(run == blocked for run in schedule.active):
            self._table.set_blocked(schedule, None)
            if blocked is not None:
                self._follow_up(UnblockRun(blocked), now)

    def _decide(
        self, schedule: Schedule, fire: Firing, decision: Decision, job_id: int | None, now: int
    ) -> None:
        self._jobs.changes.decisions.append(
            DecisionRecord(schedule.id, fire.scheduled_for, now, decision, job_id)
        )


def _overlap_of(spec: ScheduleSpec, fire: Firing) -> Overlap:
    """Return the policy for a fire. With `catchup: all`, caught-up runs may overlap."""
    is_one_of_all = fire.trigger is Trigger.CATCHUP and spec.catchup is Catchup.ALL
    return Overlap.ALLOW if is_one_of_all else spec.overlap


_DECISIONS = {
    Trigger.SCHEDULE: Decision.FIRED,
    Trigger.CATCHUP: Decision.CAUGHT_UP,
    Trigger.MANUAL: Decision.MANUAL,
}
