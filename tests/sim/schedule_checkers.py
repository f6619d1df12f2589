"""The invariants of schedules; oracle.py computes the instants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from schedo.core.limits import LATE_FIRE_US, MISSED_COUNT_MAX, SECOND
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
from schedo.core.states import State
from tests.sim.history import EDITS, TRIGGERS, History, Live
from tests.sim.oracle import instants
from tests.sim.trace import Called, Started, Stored

Findings = Iterator[str]
OF_EXPECTATIONS = (Decision.EXPECTATION_MISSED, Decision.EXPECTATION_BACK)
BY_CALENDAR = (Trigger.SCHEDULE, Trigger.CATCHUP)
FIRE_SLACK_US = 2 * SECOND
CAUSES = {Decision.MISSED, Decision.COALESCED, Decision.CAUGHT_UP}


def an_instant_has_one_job(history: History) -> Findings:
    """No two jobs of a schedule are for the same instant."""
    made: dict[tuple[int, int, int], int] = {}
    for ident, rows in history.rows.items():
        job = rows[0][1]
        if job.trigger in BY_CALENDAR and job.schedule_id and job.scheduled_for is not None:
            instant = (job.schedule_id, job.scheduled_for, job.offset_us)
            other = made.setdefault(instant, ident)
            if other != ident:
                yield f"jobs {other} and {ident} are both for {job.scheduled_for}"


def no_ghost_instants(history: History) -> Findings:
    """Every run of a schedule is for an instant of the rule that was in force."""
    for position, schedule_id, job in _new_runs(history):
        if job.trigger not in BY_CALENDAR or job.scheduled_for is None:
            continue
        at = job.scheduled_for
        rules = _rules_around(history, schedule_id, position, job.offset_us)
        if not any(instants(rule, at - 1, at) for rule in rules):
            yield f"job {job.id} is for {at}, which is no instant of its schedule"


def every_instant_is_decided_once(history: History) -> Findings:
    """Between two watermarks each instant of the calendar has exactly one decision.

    What counts elapsed time comes to the same instants again when the clock is set back; it is
    compared on the elapsed timeline.
    """
    for rows in history.schedule_rows.values():
        decided: set[tuple[bool, int]] = set()
        old: Schedule | None = None
        old_position = 0
        for position, new in rows:
            base = new.created_at - 1
            if old is not None:
                base = _moved_watermark(history, old, old_position, position)
            is_steady = old is None or (old.spec.rule == new.spec.rule and old.paused == new.paused)
            is_steady = is_steady and not history.is_pending(EDITS, new.name, position)
            elapsed, offset_us = new.counts_elapsed, history.offset_at(position)
            if elapsed and old is not None and history.was_set_between(old_position, position):
                old, old_position = new, position
                continue  # such a commit also has decisions from just before the step
            found, problems = _decided(history, position, new, base, is_steady=is_steady)
            yield from (f"schedule {new.name}: {problem}" for problem in problems)
            keys = {(elapsed, instant - offset_us if elapsed else instant) for instant in found}
            for _, instant in keys & decided:
                yield f"schedule {new.name}: {instant} was decided about twice"
            decided |= keys
            due = set(instants(new.rule, base, new.evaluated_through))
            if is_steady and not new.paused and due != found:
                yield (
                    f"schedule {new.name} at {position}: {sorted(due - found)[:3]} not decided,"
                    f" {sorted(found - due)[:3]} not due"
                )
            if is_steady and new.evaluated_through < base and old is not None:
                yield f"schedule {new.name}: its watermark went back at {position}"
            old, old_position = new, position


def _moved_watermark(history: History, row: Schedule, at: int, position: int) -> int:
    """Return the row's watermark under the offset of a later position."""
    if not row.counts_elapsed:
        return row.evaluated_through
    return row.evaluated_through + history.offset_at(position) - history.offset_at(at)


def _decided(
    history: History, position: int, schedule: Schedule, base: int, *, is_steady: bool
) -> tuple[set[int], list[str]]:
    """Return the instants that one commit decides about, and its violations.

    While a client edits the rule, the instants that a combined decision counts are unknown.
    """
    found: set[int] = set()
    uncounted: set[int] = set()
    problems = []
    may_be_manual = history.is_pending(TRIGGERS, schedule.name, position)
    for decision in _decisions(history, position, schedule.id):
        if decision.decision is Decision.MANUAL:
            continue
        rule = schedule.rule
        if decision.count == 1:
            if may_be_manual and not instants(
                rule, decision.scheduled_for - 1, decision.scheduled_for
            ):
                continue
            counted = [decision.scheduled_for]
        elif not is_steady:
            continue
        else:
            counted = instants(rule, base, decision.scheduled_for)
            if decision.count >= MISSED_COUNT_MAX - schedule.spec.catchup_max:  # or many more
                uncounted.update(counted)
                continue
            counted = counted[-decision.count :]
        if found.intersection(counted):
            problems.append(f"{decision} is about an instant twice")
        found.update(counted)
    return found | uncounted, problems


def schedules_go_on(history: History) -> Findings:
    """After the last fault, no due instant waits for its decision."""
    for position, called, _, answer in history.calls_of("delete_schedule"):
        if history.end is None or answer is None or answer.code is not None:
            continue
        if not history.is_calm_at(position):
            continue
        for rows in history.schedule_rows.values():
            before = [(at, row) for at, row in rows if at < position]
            if not before or before[-1][1].name != called.subject[0] or before[-1][1].paused:
                continue
            if history.was_deleted(before[-1][1].id, position):
                continue
            at, row = before[-1]
            watermark = _moved_watermark(history, row, at, position)
            through = called.wall - FIRE_SLACK_US
            overdue = instants(
                _moved_rule(history, row, at, history.offset_at(position)), watermark, through
            )
            if overdue:
                yield f"schedule {row.name}: nothing was decided about {overdue[:3]}"


def _moved_rule(history: History, row: Schedule, at: int, offset_us: int) -> Rule:
    """Return the row's rule under another offset than that of its position."""
    moved = row.copy()
    moved.shift(offset_us - history.offset_at(at))
    return moved.rule


def policies_are_kept(history: History) -> Findings:
    """Instants less than a minute late run; older ones follow the catch-up policy."""
    for rows in history.schedule_rows.values():
        for position, schedule in rows:
            if history.is_pending(EDITS, schedule.name, position):
                continue
            catchup = schedule.spec.catchup
            decisions = list(_decisions(history, position, schedule.id))
            caught_up = [d for d in decisions if d.decision is Decision.CAUGHT_UP]
            if caught_up and catchup is Catchup.SKIP:
                yield f"schedule {schedule.name} caught up {caught_up[0].scheduled_for}"
            if catchup is Catchup.LATEST and len({d.decided_at for d in caught_up}) < len(
                caught_up
            ):
                yield f"schedule {schedule.name} caught up more than one instant at once"
            for decision in decisions:
                age = decision.decided_at - decision.scheduled_for
                is_cut = len(decisions) > schedule.spec.catchup_max
                if decision.decision in CAUSES and age < LATE_FIRE_US and not is_cut:
                    yield f"schedule {schedule.name}: {decision} was only late"


def runs_do_not_overlap(history: History) -> Findings:
    """Unless they are allowed to, no two runs of a schedule are unfinished and not blocked."""
    free = _free_runs(history) | set(history.retried) | history.moved_in_bulk
    going: dict[int, set[int]] = defaultdict(set)
    known: set[int] = set()
    for position, event in history.of(Stored):
        grown = set()
        for job in event.changes.jobs.values():
            if job.schedule_id is None or job.id in free:
                continue
            if job.is_final or job.state is State.BLOCKED:
                going[job.schedule_id].discard(job.id)
            else:
                going[job.schedule_id].add(job.id)
            if job.id not in known and not history.was_deleted(job.schedule_id, position + 1):
                grown.add(job.schedule_id)
            known.add(job.id)
        for schedule_id in grown:
            if len(going[schedule_id]) > 1:
                yield f"runs {sorted(going[schedule_id])} overlap at {position}"


def leases_of_runs_do_not_overlap(history: History) -> Findings:
    """Unless they are allowed to, two runs of a schedule are never with workers."""
    free = _free_runs(history) | set(history.retried) | history.moved_in_bulk
    live = Live()
    for position, event in enumerate(history.trace):
        if isinstance(event, Started):
            key = event.lease.key
            owner = _owner(history, key.job_id)
            # After the schedule's deletion, its blocked run may start at any time.
            is_bound = owner is not None and not history.was_deleted(owner, position)
            if is_bound and key.job_id not in free:
                for other in live.leases:
                    is_other = other.job_id != key.job_id and other.job_id not in free
                    if is_other and _owner(history, other.job_id) == owner:
                        yield f"{key} was started while {other} of the same schedule runs"
        live.record(event)


def _owner(history: History, job_id: int) -> int | None:
    rows = history.rows.get(job_id)
    return rows[0][1].schedule_id if rows else None


def a_stopped_schedule_makes_no_runs(history: History) -> Findings:
    """After an acknowledged pause or deletion, a schedule fires only on a client's request."""
    stopped: dict[str, int] = {}
    runs = _named_runs(history)
    for position, event in enumerate(history.trace):
        if isinstance(event, Called) and event.name in (*EDITS, *TRIGGERS):
            subject = event.subject[0] if isinstance(event.subject, tuple) else event.subject.name
            stopped.pop(subject, None)
        elif isinstance(event, Stored):
            for name, job in runs[position]:
                if name in stopped and job.trigger in BY_CALENDAR:
                    yield f"job {job.id} was made after {name} was stopped at {stopped[name]}"
        elif getattr(event, "code", "") is None:
            called = history.calls[event.call][1]  # type: ignore[attr-defined]
            is_stop = called.name in ("pause_schedule", "delete_schedule")
            if is_stop and not history.is_pending(EDITS, called.subject[0], position):
                stopped[called.subject[0]] = position


def _named_runs(history: History) -> dict[int, list[tuple[str, Job]]]:
    """Return the new runs of each position with the names of their schedules."""
    names = {i: rows[0][1].name for i, rows in history.schedule_rows.items()}
    runs = defaultdict(list)
    for position, schedule_id, job in _new_runs(history):
        runs[position].append((names.get(schedule_id, ""), job))
    return runs


def _new_runs(history: History) -> Iterator[tuple[int, int, Job]]:
    for rows in history.rows.values():
        position, job = rows[0]
        if job.schedule_id is not None:
            yield position, job.schedule_id, job


def _decisions(history: History, position: int, schedule_id: int) -> Iterator[DecisionRecord]:
    event = history.trace[position]
    assert isinstance(event, Stored), "rows are stored"
    of_schedule = (d for d in event.changes.decisions if d.schedule_id == schedule_id)
    return (d for d in of_schedule if d.decision not in OF_EXPECTATIONS)


def _specs_around(history: History, schedule_id: int, position: int) -> list[ScheduleSpec]:
    """Return the specs that a commit may have followed: those before it, in it and between."""
    rows = history.schedule_rows.get(schedule_id, [])
    before = [row.spec for at, row in rows if at < position][-1:]
    within = [row.spec for at, row in rows if at == position]
    return before + within + _pending_specs(history, before + within, position)


def _rules_around(history: History, schedule_id: int, position: int, offset_us: int) -> list[Rule]:
    """Return the rules, under the offset, that a commit may have followed."""
    rows = history.schedule_rows.get(schedule_id, [])
    known = [(at, row) for at, row in rows if at < position][-1:]
    known += [(at, row) for at, row in rows if at == position]
    pending = _pending_specs(history, [row.spec for _, row in known], position)
    return [_moved_rule(history, row, at, offset_us) for at, row in known] + [
        spec.rule for spec in pending
    ]


def _pending_specs(
    history: History, known: list[ScheduleSpec], position: int
) -> list[ScheduleSpec]:
    """Return the specs that clients had requested when a commit was made."""
    name = known[0].name if known else ""
    return [
        called.subject
        for at, called, answered, answer in history.calls_of("put_schedule")
        if called.subject.name == name and at < position and answer is not None
        if (history.acts_until(answered, answer) or position) >= position
    ]


def _free_runs(history: History) -> set[int]:
    """Return the runs that may overlap others, or whose policy at that time is unknown."""
    free = set()
    for position, schedule_id, job in _new_runs(history):
        specs = _specs_around(history, schedule_id, position)
        is_manual = job.trigger is Trigger.MANUAL
        policies = {spec.overlap for spec in specs}
        is_one_of_all = job.trigger is Trigger.CATCHUP and any(
            spec.catchup is Catchup.ALL for spec in specs
        )
        if is_manual or is_one_of_all or Overlap.ALLOW in policies or not policies:
            free.add(job.id)
    return free


CHECKERS: tuple[Callable[[History], Findings], ...] = (
    an_instant_has_one_job,
    no_ghost_instants,
    every_instant_is_decided_once,
    schedules_go_on,
    policies_are_kept,
    runs_do_not_overlap,
    leases_of_runs_do_not_overlap,
    a_stopped_schedule_makes_no_runs,
)
