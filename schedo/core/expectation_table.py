"""The expectations of one server: their limits, their event jobs, and the commands on them.

All of them are in memory, so a run that completes and a beat change them at once. The change, its
event job and the completed run are in the same commit: none of them is lost or doubled by a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from schedo.core.commands import Command, PutEffect
from schedo.core.event_jobs import Facts
from schedo.core.expectations import Expectation, ExpectationSpec, ExpectationState
from schedo.core.ids import IdSource, render_id
from schedo.core.instants import describe_duration, render_instant
from schedo.core.job_maker import JobMaker
from schedo.core.job_table import JobTable
from schedo.core.limits import EXPECTATIONS_MAX, TURN_FIRES_MAX
from schedo.core.loads import Appliers, Loaded
from schedo.core.model import BY_HAND, Decision, DecisionRecord, Job, Schedule, Trigger
from schedo.core.states import State
from schedo.core.timers import Timers, earliest
from schedo.errors import Conflict, NotFound

_OK, _MISSED = ExpectationState


class PutExpectation(Command[tuple[Expectation, PutEffect]], frozen=True):
    """Create a named expectation or change it to the spec."""

    spec: ExpectationSpec


class DeclaredExpectation(NamedTuple):
    """What a declaration did to a named expectation; before: a copy of the earlier record."""

    effect: PutEffect
    expectation: Expectation
    before: Expectation | None


class DeclareExpectations(Command[list[DeclaredExpectation]], frozen=True):
    """Put the named expectations that an owner declares, and delete some that it owned.

    removed: names; those of another owner stay. Raises Conflict.
    """

    owner: str
    specs: Sequence[ExpectationSpec]
    removed: Sequence[str] = ()


class DeleteExpectation(Command[None], frozen=True):
    """Delete a named expectation. Raises NotFound."""

    name: str


class Beat(Command[Expectation], frozen=True):
    """Note that the work outside has been done. Raises NotFound."""

    name: str


class Expectations:
    """The expectations by id; that of a schedule has the schedule's id."""

    def __init__(self, jobs: JobTable, ids: IdSource, maker: JobMaker) -> None:
        self._jobs = jobs
        self._ids = ids
        self._maker = maker
        self._by_id: dict[int, Expectation] = {}
        self._named: dict[str, int] = {}
        self._limits = Timers()  # by the id of the expectation
        self._long = Timers()  # by the id of the job: when its attempt runs for too long
        self._now = 0  # of the last tick
        self._warnings: list[str] = []
        self.find = self._by_id.get
        self.appliers: Appliers = {
            PutExpectation: self._put,
            DeclareExpectations: self._declare,
            DeleteExpectation: self._delete,
            Beat: self._beat,
        }

    def all(self) -> Iterable[Expectation]:
        """Return all expectations, in no order."""
        return self._by_id.values()

    def restore(self, expectations: Iterable[Expectation]) -> None:
        """Restore the expectations of the store."""
        for each in expectations:
            self._add(each)

    def take_warnings(self, others: list[str]) -> list[str]:
        """Return the others, and what to log since the last call."""
        if not self._warnings:  # as after nearly every turn
            return others
        warnings, self._warnings = self._warnings, []
        return others + warnings

    # Time.

    def tick(self, now: int) -> None:
        """Handle a bounded number of limits that have passed."""
        self._now = now
        if not (self._limits.live or self._long.live):
            return  # without expectations, which most servers do not have
        for _, ident in self._limits.pop_due(now, TURN_FIRES_MAX):
            self._check(self._by_id[ident], now)
        for _, job_id in self._long.pop_due(now, TURN_FIRES_MAX):
            job = self._jobs.find(job_id)
            assert job is not None, "a running job is in memory"
            self._note_long(job, now)

    def next_at(self) -> int | None:
        """Return the next limit, or None."""
        if not (self._limits.live or self._long.live):
            return None
        limit, long = self._limits.first(), self._long.first()
        return earliest(limit and limit[0], long and long[0])

    def follow_clock(self, delta_us: int) -> None:
        """Follow a change of the wall clock: limits count elapsed time."""
        self._long.shift(delta_us)
        for each in self._by_id.values():
            if each.follow_clock(delta_us, self._now):
                self._jobs.changes.expectations[each.id] = each
            self._arm(each)

    # Schedules and their runs.

    def check_room(self, wanted: Set[str], unwanted: Set[str]) -> None:
        """Raise Conflict if these schedules, by name, would bring too many expectations.

        unwanted: schedules whose expectations go in the same change, if they have any.
        """
        if wanted:
            known = {each.name for each in self._by_id.values() if each.of_schedule}
            self._check_room(len(wanted - known), len(unwanted & known))

    def follow_schedule(self, schedule: Schedule, now: int) -> None:
        """Expect what the schedule now says, if anything."""
        known, spec = self._by_id.get(schedule.id), schedule.spec
        if spec.expect is None:
            self.forget_schedule(schedule.id)
            return
        through = max(schedule.evaluated_through, now - 1)
        longest = None if known is None else known.expect.max_duration_us
        if known is None:
            known = Expectation(
                schedule.id, spec.name, True, spec.rule, spec.expect, now, now, through, now
            )
            known.phase_us = schedule.phase_us
            self._add(known)
        elif known.rule != spec.rule or known.expect.within_us is None:  # no instant was awaited
            known.rule, known.phase_us = spec.rule, schedule.phase_us
            known.through, known.early = through, ()
        known.expect, known.updated_at = spec.expect, now
        self._changed(known)
        if spec.expect.max_duration_us != longest:
            for job in filter(None, map(self._jobs.find, schedule.active)):
                self.run_stopped(job)
                if job.state is State.RUNNING:
                    self.run_started(job)

    def align(self, schedule: Schedule) -> None:
        """Let the expectation of an interval count elapsed time if its schedule does."""
        known = self._by_id.get(schedule.id)
        if known is not None and known.align(schedule):
            self._changed(known)

    def forget_schedule(self, schedule_id: int) -> None:
        """Remove the expectation of the schedule, if it has one."""
        if self._by_id.pop(schedule_id, None) is not None:
            self._removed(schedule_id)

    def run_started(self, job: Job) -> None:
        """Watch how long the attempt of the run takes, if that is limited."""
        known = self._by_id.get(job.schedule_id or 0)
        longest = None if known is None else known.expect.max_duration_us
        if longest is not None and job.started_at is not None:
            self._long.arm(job.id, job.started_at + longest)

    def run_stopped(self, job: Job) -> None:
        """Watch the attempt no longer."""
        self._long.cancel(job.id)

    def run_ended(self, job: Job, now: int) -> None:
        """Settle the instant of the run if it has completed."""
        known = self._by_id.get(job.schedule_id or 0)
        if known is None or job.state is not State.COMPLETED:
            return
        self._check(known, now)  # its limit may have passed before this turn
        instant = known.instant_of(job, self._jobs.offset_us)
        known.complete(instant, job.missed_count)
        self._keep(known, job.scheduled_for or now, now, job.id)

    # Commands.

    def _put(
        self, command: PutExpectation, now: int, loaded: Loaded
    ) -> tuple[Expectation, PutEffect]:
        spec = command.spec
        known = self._find(spec.name)
        if known is None:
            self._check_room(1, 0)
            return self._create(spec, BY_HAND, now), PutEffect.CREATED
        return known, self._change(known, spec, now)

    def _declare(
        self, command: DeclareExpectations, now: int, loaded: Loaded
    ) -> list[DeclaredExpectation]:
        found = filter(None, map(self._find, command.removed))
        owned = [known for known in found if known.owner == command.owner]
        new = sum(spec.name not in self._named for spec in command.specs)
        self._check_room(new, len(owned))
        done = [self._declare_one(spec, command.owner, now) for spec in command.specs]
        for known in owned:
            self._remove(known)
        return done + [DeclaredExpectation(PutEffect.REMOVED, known, known) for known in owned]

    def _declare_one(self, spec: ExpectationSpec, owner: str, now: int) -> DeclaredExpectation:
        known = self._find(spec.name)
        if known is None:
            return DeclaredExpectation(PutEffect.CREATED, self._create(spec, owner, now), None)
        before = known.copy()
        effect = self._change(known, spec, now)
        if known.owner != owner:
            known.owner = owner
            self._changed(known)
        return DeclaredExpectation(effect, known, before)

    def _create(self, spec: ExpectationSpec, owner: str, now: int) -> Expectation:
        ident = self._ids.next(now)
        made = Expectation(ident, spec.name, False, spec.rule, spec.expect, now, now, now, now)
        made.cron_source, made.owner = spec.cron_source, owner
        self._add(made)
        self._changed(made)
        return made

    def _change(self, known: Expectation, spec: ExpectationSpec, now: int) -> PutEffect:
        if known.spec == spec:
            return PutEffect.UNCHANGED
        if known.rule != spec.rule:
            known.beat(now)
        known.rule, known.expect, known.cron_source = spec.rule, spec.expect, spec.cron_source
        known.updated_at = now
        self._changed(known)
        return PutEffect.CHANGED

    def _delete(self, command: DeleteExpectation, now: int, loaded: Loaded) -> None:
        self._remove(self._find_named(command.name))

    def _remove(self, known: Expectation) -> None:
        del self._by_id[known.id], self._named[known.name]
        self._removed(known.id)

    def _beat(self, command: Beat, now: int, loaded: Loaded) -> Expectation:
        known = self._find_named(command.name)
        self._check(known, now)
        known.beat(now)
        self._keep(known, now, now, None)
        return known

    def _find_named(self, name: str) -> Expectation:
        known = self._find(name)
        if known is None:
            raise NotFound(f"there is no expectation {name!r}")
        return known

    def _find(self, name: str) -> Expectation | None:
        return self._by_id.get(self._named.get(name, 0))

    def _check_room(self, new: int, removed: int) -> None:
        if new > removed and len(self._by_id) + new - removed > EXPECTATIONS_MAX:
            raise Conflict(f"there are {EXPECTATIONS_MAX} expectations; that is the most")

    # Changes of one expectation.

    def _add(self, expectation: Expectation) -> None:
        self._by_id[expectation.id] = expectation
        if not expectation.of_schedule:
            self._named[expectation.name] = expectation.id
        self._arm(expectation)

    def _changed(self, expectation: Expectation) -> None:
        self._jobs.changes.expectations[expectation.id] = expectation
        self._arm(expectation)

    def _removed(self, ident: int) -> None:
        self._limits.cancel(ident)
        self._jobs.changes.expectations[ident] = None

    def _arm(self, expectation: Expectation) -> None:
        limit = expectation.limit()
        if limit is None:
            self._limits.cancel(expectation.id)
        else:
            self._limits.arm(expectation.id, limit)

    def _check(self, expectation: Expectation, now: int) -> None:
        """Note the instants whose limit has passed."""
        overdue = expectation.take_overdue(now)
        if overdue is None:
            return
        within = describe_duration(expectation.expect.within_us or 0)
        what = "no run has completed" if expectation.of_schedule else "no beat has come"
        message = f"{what} within {within} after {render_instant(overdue.instant)}"
        self._miss(expectation, overdue.instant, overdue.number, message, None, now)

    def _note_long(self, job: Job, now: int) -> None:
        known = self._by_id.get(job.schedule_id or 0)
        longest = None if known is None else known.expect.max_duration_us
        if known is None or longest is None or known.long_job_id == job.id:
            return
        known.long_job_id = job.id
        message = f"job {render_id(job.id)} has run for more than {describe_duration(longest)}"
        self._miss(known, job.scheduled_for or now, 1, message, job.id, now)

    def _miss(  # what is said of the miss
        self,
        expectation: Expectation,
        instant: int,
        count: int,
        message: str,
        job_id: int | None,
        now: int,
    ) -> None:
        """Note misses; the first one after a time without any changes the state."""
        expectation.missed += count
        event_job = None
        if expectation.state is _OK:
            expectation.state, expectation.since = _MISSED, now
            facts = {"message": message, "scheduled_for": render_instant(instant)}
            event_job = self._make_job(expectation, Trigger.ON_MISS, facts, job_id, now)
            self._warnings.append(f"{_name(expectation)} is missed: {message}")
        if expectation.of_schedule:
            self._decide(expectation, instant, Decision.EXPECTATION_MISSED, event_job, count, now)
        self._changed(expectation)

    def _keep(self, expectation: Expectation, instant: int, now: int, job_id: int | None) -> None:
        """Note a completed run or a beat; after a miss, the expectation is met again."""
        expectation.kept_at = now
        if expectation.state is _MISSED:
            facts = {"missed_since": render_instant(expectation.since)}
            expectation.state, expectation.since = _OK, now
            event_job = self._make_job(expectation, Trigger.ON_BACK, facts, job_id, now)
            if expectation.of_schedule:
                self._decide(expectation, instant, Decision.EXPECTATION_BACK, event_job, 1, now)
            self._warnings.append(f"{_name(expectation)} is met again")
        self._changed(expectation)

    def _make_job(
        self,
        expectation: Expectation,
        trigger: Trigger,
        facts: dict[str, str],
        job_id: int | None,
        now: int,
    ) -> int | None:
        expect = expectation.expect
        spec = expect.on_miss if trigger is Trigger.ON_MISS else expect.on_back
        if spec is None:
            return None
        values = {
            "event": "missed" if trigger is Trigger.ON_MISS else "back",
            "at": render_instant(now),
            "schedule" if expectation.of_schedule else "name": expectation.name,
            **facts,
        }
        if job_id is not None:
            values["job"] = render_id(job_id)
        # Named expectations have no screen of their own.
        path = f"/schedules/{expectation.name}" if expectation.of_schedule else "/expectations"
        event = Facts("expectation", values, path)
        return self._maker.make_event_job(spec, event, trigger, now).id

    def _decide(  # the fields of the record
        self,
        expectation: Expectation,
        instant: int,
        decision: Decision,
        job_id: int | None,
        count: int,
        now: int,
    ) -> None:
        record = DecisionRecord(expectation.id, instant, now, decision, job_id, count)
        self._jobs.changes.decisions.append(record)


def _name(expectation: Expectation) -> str:
    kind = "of the schedule " if expectation.of_schedule else ""
    return f"the expectation {kind}{expectation.name!r}"
