"""The schedules in memory: when each one fires, which run a fire makes, and how runs overlap.

A fire moves the schedule's watermark and makes its job in the same commit, so an instant is neither
fired twice nor lost. Whether a run overlaps is derived from the schedule's jobs that have not
ended, never from a flag.
"""

from __future__ import annotations

from collections.abc import Sequence

from schedo.core.blocked_runs import BlockedRuns, resolve
from schedo.core.catchup import Firing, plan_fires
from schedo.core.commands import Triggered, UnblockNext
from schedo.core.fire_order import FireOrder
from schedo.core.ids import IdSource, newest_at
from schedo.core.job_table import JobTable
from schedo.core.limits import ACTIVE_RUNS_KNOWN_MAX, WINDOW_ENTRIES
from schedo.core.loads import BlockedRun, Load, LoadBlocked, LoadSchedule, LoadSchedules
from schedo.core.model import (
    Catchup,
    Decision,
    DecisionRecord,
    Job,
    Overlap,
    Rule,
    Schedule,
    ScheduleSpec,
    Trigger,
)
from schedo.core.runs import RunCallbacks, new_run
from schedo.core.states import State
from schedo.core.triggers import next_after


class Schedules:
    """The schedule records in memory. `order` holds those that fire soonest."""

    def __init__(
        self, jobs: JobTable, ids: IdSource, runs: RunCallbacks, capacity: int = WINDOW_ENTRIES
    ) -> None:
        self._jobs = jobs
        self._ids = ids
        self._runs = runs
        self._schedules: dict[int, Schedule] = {}
        self._names: dict[str, int] = {}
        self._blocked = BlockedRuns(capacity)
        self.order = FireOrder(capacity)
        self._evictable: set[int] = set()  # perhaps held nowhere; checked at the next commit
        self.pending_loads: list[Load] = []

    def restore_blocked(self) -> None:
        """Check page by page whether the blocked runs of the store are still blocked."""
        self.pending_loads.append(self._blocked.restore())

    def take_blocked(self, load: LoadBlocked, page: list[BlockedRun], now: int) -> None:
        """Unblock, cancel or keep the blocked runs of a page."""
        for job_id, ident, loaded in page:
            job = self._jobs.find(job_id)
            if job is not None and job.state is not State.BLOCKED:
                continue
            schedule = self.current(ident, loaded)
            if schedule is not None and schedule is loaded:
                self._review((schedule,))
            stays = resolve(schedule, job_id, self._runs, now)
            if schedule is not None and schedule.blocked in (None, job_id):
                self._set_blocked(schedule, job_id if stays else None)
        following = self._blocked.restore_next(load, page)
        if following is not None:
            self.pending_loads.append(following)

    def _set_blocked(self, schedule: Schedule, job_id: int | None) -> None:
        schedule.blocked = job_id
        if job_id is None:
            self._blocked.discard(schedule.id)
        else:
            self._blocked.add(schedule.id)

    def find(self, which: str | int) -> Schedule | None:
        """Return the record by name or id if it is in memory."""
        ident = self._names.get(which) if isinstance(which, str) else which
        return self._schedules.get(ident) if ident is not None else None

    def current(self, which: str | int, loaded: Schedule | None) -> Schedule | None:
        """Return the schedule, given the loaded record; memory wins."""
        known = self.find(which)
        if known is None and loaded is not None and not self._is_deleted(loaded):
            return loaded
        return known

    def _is_deleted(self, schedule: Schedule) -> bool:
        return schedule.id in self._jobs.changes.schedules_deleted

    def track(self, schedule: Schedule) -> Schedule:
        """Add a loaded record, or return the one in memory, which wins."""
        known = self._schedules.get(schedule.id)
        if known is not None:
            return known
        self._keep(schedule)
        self._review((schedule,))
        return schedule

    def _keep(self, schedule: Schedule) -> None:
        self._schedules[schedule.id] = schedule
        self._names[schedule.name] = schedule.id
        self._evictable.add(schedule.id)

    # Commands.

    def put(self, spec: ScheduleSpec, known: Schedule | None, now: int) -> tuple[Schedule, bool]:
        """Create the schedule or change it to the spec; return it and whether it is new.

        A changed rule moves the watermark to now: a new rule never fires for the past.
        """
        if known is None:
            first = next_after(spec.rule, now - 1)
            ident = self._ids.next(now)
            known = Schedule(ident, spec, now, now, now - 1, first, paused=spec.paused)
            self._keep(known)  # it is new, so no run of it can be uncommitted
            self._changed(known)
            return known, True
        known = self.track(known)
        if known.spec != spec:
            old, known.spec = known.spec, spec
            if old.rule != spec.rule:
                self._change_rule(known, old.rule, now)
            if old.paused != spec.paused:
                self._set_paused(known, spec.paused, now)
            known.updated_at = now
            self._changed(known)
        return known, False

    def _change_rule(self, schedule: Schedule, old: Rule, now: int) -> None:
        """Move the watermark to now. After a clock change the two timelines differ."""
        schedule.phase_us = 0
        was_interval, is_interval = (
            old.every_us is not None,
            schedule.spec.rule.every_us is not None,
        )
        if is_interval and not was_interval:
            schedule.evaluated_through = min(schedule.evaluated_through, now)
        if was_interval and not is_interval:
            _restart(
                schedule, max(now, newest_at(self._ids.last))
            )  # so that no instant fires twice
        else:
            _restart(schedule, now)

    def delete(self, schedule: Schedule, now: int) -> None:
        """Delete the schedule. Its jobs stay, and a blocked run is unblocked."""
        schedule = self.track(schedule)
        if schedule.blocked is not None:
            self._runs.unblock_run(schedule.blocked, now)
        self._schedules.pop(schedule.id, None)
        self._names.pop(schedule.name, None)
        self._blocked.discard(schedule.id)
        self.order.disarm(schedule.id)
        self._jobs.changes.schedules.pop(schedule.id, None)
        self._jobs.changes.schedules_deleted.append(schedule.id)

    def pause(self, schedule: Schedule, note: str | None, now: int) -> Schedule:
        """Pause the schedule until `resume`. A manual trigger still works."""
        schedule = self.track(schedule)
        schedule.note = note
        schedule.updated_at = now
        self._set_paused(schedule, True, now)
        self._changed(schedule)
        return schedule

    def resume(self, schedule: Schedule, resume_from: int | None, now: int) -> Schedule:
        """Fire again from now on, or from an earlier instant by the catch-up policy."""
        schedule = self.track(schedule)
        schedule.note = None
        schedule.updated_at = now
        self._set_paused(schedule, False, now if resume_from is None else min(resume_from, now))
        self._changed(schedule)
        return schedule

    def trigger(self, schedule: Schedule, overlap: Overlap | None, now: int) -> Triggered:
        """Make a run now, by the given overlap policy or else that of the schedule."""
        schedule = self.track(schedule)
        fire = Firing(now, Trigger.MANUAL)
        job_id, blocking = self._run(schedule, fire, overlap or schedule.spec.overlap, now)
        self._changed(schedule)
        return Triggered(self._jobs.find(job_id or 0), blocking)

    # Time.

    def next_at(self) -> int | None:
        """Return the soonest fire in memory."""
        return self.order.next_at()

    def fire_due(self, now: int, limit: int) -> None:
        """Fire up to `limit` due schedules."""
        for ident in self.order.pop_due(now, limit):
            schedule = self._schedules[ident]
            if schedule.next_fire_at is not None and schedule.next_fire_at > now:
                self._hold(schedule)  # the clock was set back
                continue
            plan = plan_fires(schedule, now)
            self._ids.reach(now)  # a later rule of a cron begins after what is decided here
            self._jobs.changes.decisions.extend(plan.decisions)
            schedule.missed += sum(d.count for d in plan.decisions if d.decision is Decision.MISSED)
            for fire in plan.fires:
                self._run(schedule, fire, _overlap_of(schedule.spec, fire), now)
            schedule.evaluated_through = now
            schedule.next_fire_at = plan.next_fire_at
            self._changed(schedule, fired_at=now)

    def _run(
        self, schedule: Schedule, fire: Firing, overlap: Overlap, now: int
    ) -> tuple[int | None, int | None]:
        """Make the run if overlap allows; return its job's id, or the run that prevents it."""
        busy = schedule.active[0] if schedule.active else None
        is_blocked = False
        if busy is not None and overlap is not Overlap.ALLOW:
            if overlap is Overlap.CANCEL_OTHER:
                for other in list(schedule.active):
                    self._runs.cancel_run(other, now)
                is_blocked = bool(schedule.active)  # running attempts must stop first
            elif overlap is Overlap.SKIP or schedule.blocked is not None:
                schedule.overlap_skipped += 1
                self._decide(schedule, fire, Decision.SKIPPED_OVERLAP, None, now)
                return None, busy
            else:
                is_blocked = True
        job = self._runs.make_run(new_run(schedule, fire, is_blocked), now)
        if len(schedule.active) < ACTIVE_RUNS_KNOWN_MAX:
            schedule.active.append(job.id)
        schedule.last_job_id = job.id
        if is_blocked:
            self._set_blocked(schedule, job.id)
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
        schedule = self._schedules.get(ident)
        if schedule is None:
            if self._blocked.may_have(ident):
                self.pending_loads.append(LoadSchedule(ident, UnblockNext(ident)))
            return
        if job.id in schedule.active:
            schedule.active.remove(job.id)
        if schedule.blocked == job.id:
            self._set_blocked(schedule, None)
        self._unblock(schedule, now)

    def run_requeued(self, job: Job) -> None:
        """Record that a run is queued: it is active, and blocked no longer."""
        schedule = self._schedules.get(job.schedule_id or 0)
        if schedule is None:
            return
        if job.id not in schedule.active:
            schedule.active.append(job.id)
        if schedule.blocked == job.id:
            self._set_blocked(schedule, None)

    def unblock_next(self, schedule: Schedule, now: int) -> None:
        """Unblock the blocked run of the schedule if no other run of it is active."""
        schedule = self.track(schedule)
        self._unblock(schedule, now)
        self._hold(schedule)

    def _unblock(self, schedule: Schedule, now: int) -> None:
        blocked = schedule.blocked
        if all(run == blocked for run in schedule.active):
            self._set_blocked(schedule, None)
            if blocked is not None:
                self._runs.unblock_run(blocked, now)

    # Memory.

    @property
    def armed(self) -> int:
        return len(self.order)

    def needs_loads(self) -> bool:
        """Whether the store must load something."""
        return bool(self.pending_loads) or self.order.needs_page()

    def loads(self) -> list[Load]:
        """Return the loads that are needed now, each once."""
        pending, self.pending_loads = self.pending_loads, []
        return pending + self.order.loads()

    def shift(self, delta_us: int) -> None:
        """Shift the instants that count elapsed time, and load the order of fires again."""
        for schedule in self._schedules.values():
            schedule.shift(delta_us)
        self.order.restart()
        self._evictable.update(self._schedules)

    def extend(self, load: LoadSchedules, page: list[Schedule]) -> None:
        """Add a page of schedules."""
        if not self.order.extend(load, page):
            return
        new = [s for s in page if s.id not in self._schedules and not self._is_deleted(s)]
        for schedule in new:
            self._schedules[schedule.id] = schedule
            self._names[schedule.name] = schedule.id
        self._review(new)
        ids = [s.id for s in page if s.id in self._schedules]
        for ident in dict.fromkeys([*ids, *self._jobs.changes.schedules]):
            if not self.order.take(load, self._schedules[ident]):
                self._evictable.add(ident)
        self._evictable.update(self.order.trim())

    def committed(self) -> None:
        """Evict the records that the order does not hold and the store has."""
        kept = self._jobs.changes.schedules
        loose, self._evictable = self._evictable, {i for i in self._evictable if i in kept}
        for ident in loose - self._evictable:
            if ident in self._schedules and ident not in self.order:
                del self._names[self._schedules.pop(ident).name]

    def _review(self, loaded: Sequence[Schedule]) -> None:
        """Correct the loaded active runs by the changes that are not yet durable."""
        by_id = {schedule.id: schedule for schedule in loaded}
        for job in self._jobs.changes.jobs.values():
            known = by_id.get(job.schedule_id or 0)
            if known is None:
                continue
            if job.id in known.active:
                known.active.remove(job.id)
            if not job.is_final:
                known.active.append(job.id)
            if job.state is State.BLOCKED:
                known.blocked = max(known.blocked or 0, job.id)
            elif known.blocked == job.id:
                known.blocked = None

    def _set_paused(self, schedule: Schedule, paused: bool, resume_from: int) -> None:
        if schedule.paused and not paused:
            _restart(schedule, resume_from)
        schedule.paused = paused

    def _changed(self, schedule: Schedule, fired_at: int | None = None) -> None:
        self._jobs.changes.schedules[schedule.id] = schedule
        self._hold(schedule, fired_at)

    def _hold(self, schedule: Schedule, fired_at: int | None = None) -> None:
        """Arm the next fire if it is before the horizon, or if the schedule fires frequently."""
        at, ident = schedule.next_fire_at, schedule.id
        if schedule.paused or at is None:
            self.order.disarm(ident)
            self._evictable.add(ident)
        elif fired_at is not None and self.order.keep(ident, at, fired_at):
            return
        elif not self.order.arm(ident, at):
            self._evictable.add(ident)
        self._evictable.update(self.order.trim())

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


def _restart(schedule: Schedule, through: int) -> None:
    """Set the watermark, but never back to instants with a decision: they would fire twice."""
    schedule.evaluated_through = max(through, schedule.evaluated_through)
    schedule.next_fire_at = next_after(schedule.rule, schedule.evaluated_through)


_DECISIONS = {
    Trigger.SCHEDULE: Decision.FIRED,
    Trigger.CATCHUP: Decision.CAUGHT_UP,
    Trigger.MANUAL: Decision.MANUAL,
}
