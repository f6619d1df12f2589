"""Mutations that make the schedules of a good trace wrong; see mutations.py."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from schedo.core.changes import Changes
from schedo.core.model import Decision, Job, Overlap
from tests.sim.history import EDITS, History
from tests.sim.mutations import changed, edit, positions, put
from tests.sim.trace import Answered, Called, Started, Stored, Trace


def _fired(trace: Trace, decisions: tuple[Decision, ...] = (Decision.FIRED,)) -> list[int]:
    return positions(
        trace,
        Stored,
        lambda event: any(d.decision in decisions for d in event.changes.decisions),
    )


def drop_an_instant(trace: Trace, random: Random) -> Trace:
    at = random.choice(_steady_fires(trace))

    def forget(changes: Changes) -> None:
        gone = next(d for d in changes.decisions if d.decision is Decision.FIRED)
        changes.decisions.remove(gone)

    return edit(trace, at, forget)


def _steady_fires(trace: Trace) -> list[int]:
    """Return the commits with a fire during which no client edits a schedule."""
    history = History(trace)
    names = {ident: rows[0][1].name for ident, rows in history.schedule_rows.items()}
    found = []
    for at in _fired(trace):
        event: Any = trace[at]
        ids = {d.schedule_id for d in event.changes.decisions}
        earlier = all(history.schedule_rows[i][0][0] < at for i in ids)
        if earlier and not any(history.is_pending(EDITS, names[i], at) for i in ids):
            found.append(at)
    return found


def _edit_run(trace: Trace, random: Random, change: Callable[[Job], Job]) -> Trace:
    """Change the first run that a fire has made."""
    at = random.choice(_steady_fires(trace))
    event: Any = trace[at]
    decision = next(d for d in event.changes.decisions if d.decision is Decision.FIRED)
    twin = change(event.changes.jobs[decision.job_id])
    return edit(trace, at, lambda changes: changes.jobs.update({twin.id: twin}))


def duplicate_an_instant(trace: Trace, random: Random) -> Trace:
    return _edit_run(trace, random, lambda job: changed(job, id=job.id + 1_000_000))


def invent_an_instant(trace: Trace, random: Random) -> Trace:
    def shift(job: Job) -> Job:
        assert job.scheduled_for is not None
        return changed(job, scheduled_for=job.scheduled_for + 1)

    return _edit_run(trace, random, shift)


def decide_twice(trace: Trace, random: Random) -> Trace:
    at = random.choice(_steady_fires(trace))

    def repeat(changes: Changes) -> None:
        changes.decisions.append(changes.decisions[0])

    return edit(trace, at, repeat)


def turn_a_watermark_back(trace: Trace, random: Random) -> Trace:
    at = random.choice(_steady_fires(trace))

    def back(changes: Changes) -> None:
        for schedule in changes.schedules.values():
            schedule.evaluated_through -= 3_600_000_000

    return edit(trace, at, back)


def call_a_late_instant_missed(trace: Trace, random: Random) -> Trace:
    at = random.choice(_steady_fires(trace))

    def miss(changes: Changes) -> None:
        index = next(i for i, d in enumerate(changes.decisions) if d.decision is Decision.FIRED)
        late = changes.decisions[index]
        changes.decisions[index] = changed(
            late, decision=Decision.MISSED, decided_at=late.scheduled_for
        )

    return edit(trace, at, miss)


def let_runs_overlap(trace: Trace, random: Random) -> Trace:
    """A second run of the same schedule starts right after the first."""
    history = History(trace)
    strict = [
        at
        for at, event in history.of(Started)
        if _is_strict_run(history, event.lease.key.job_id)
        and any(
            job.schedule_id == _schedule_of(history, event.lease.key.job_id)
            for job in _other_runs(history, event.lease.key.job_id)
        )
    ]
    at = random.choice(strict)
    event: Any = trace[at]
    ident = event.lease.key.job_id
    owner = _schedule_of(history, ident)
    other = next(job for job in _other_runs(history, ident) if job.schedule_id == owner)
    key = event.lease.key._replace(job_id=other.id, attempt=99)
    return put(trace, at, event, changed(event, lease=replace(event.lease, key=key)))


def _schedule_of(history: History, ident: int) -> int | None:
    return history.rows[ident][0][1].schedule_id


def _is_strict_run(history: History, ident: int) -> bool:
    job = history.rows[ident][0][1]
    if job.schedule_id is None or job.trigger.value != "schedule" or ident in history.retried:
        return False
    rows = history.schedule_rows[job.schedule_id]
    return all(row.spec.overlap is not Overlap.ALLOW for _, row in rows) and not (
        history.was_deleted(job.schedule_id, history.starts[ident][0][0])
        if ident in history.starts
        else False
    )


def _other_runs(history: History, ident: int) -> list[Job]:
    return [
        rows[0][1]
        for other, rows in history.rows.items()
        if other != ident and rows[0][1].schedule_id is not None and _is_strict_run(history, other)
    ]


def fire_after_a_pause(trace: Trace, random: Random) -> Trace:
    at = random.choice(_steady_fires(trace))
    event: Any = trace[at]
    decision = next(d for d in event.changes.decisions if d.decision is Decision.FIRED)
    name = History(trace).schedule_rows[decision.schedule_id][0][1].name
    called = Called(event.at, event.wall, 100_000, "pause_schedule", (name,))
    return put(trace, at, called, Answered(event.at, event.wall, 100_000), event)


def stop_a_schedule_in_silence(trace: Trace, random: Random) -> Trace:
    """From some calm instant on, one schedule gets no decisions."""
    history = History(trace)
    quiet = [at for at in _steady_fires(trace) if history.is_calm_at(at)]
    at = random.choice(quiet[: len(quiet) // 2])
    event: Any = trace[at]
    ident = next(d.schedule_id for d in event.changes.decisions if d.decision is Decision.FIRED)

    def forget(changes: Changes) -> None:
        changes.schedules.pop(ident, None)
        changes.decisions[:] = [d for d in changes.decisions if d.schedule_id != ident]

    for position in positions(trace, Stored, lambda event: ident in event.changes.schedules):
        if position >= at:
            trace = edit(trace, position, forget)
    return trace
