"""Mutations that make a good trace wrong; one of the checkers must find each of them.

A mutation takes the trace and a Random, and returns the changed trace. It changes what a real fault
would change, and as little else as possible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from schedo.core.changes import Changes
from schedo.core.leases import Completed, StopReason
from schedo.core.model import Job, Queue
from schedo.core.states import State
from tests.sim.disk import freeze
from tests.sim.history import History
from tests.sim.trace import (
    Answered,
    Attached,
    Called,
    Detached,
    Died,
    Ended,
    Event,
    Opened,
    Probed,
    Reported,
    Started,
    StopSent,
    Stored,
    Trace,
)

Mutation = Callable[[Trace, Random], Trace]
changed = dataclasses.replace


def positions(trace: Trace, kind: type[Any], wanted: Callable[[Any], bool]) -> list[int]:
    return [at for at, event in enumerate(trace) if type(event) is kind and wanted(event)]


def put(trace: Trace, at: int, *events: Event) -> Trace:
    """Return the trace with the event at the position replaced by others."""
    return [*trace[:at], *events, *trace[at + 1 :]]


def edit(trace: Trace, at: int, change: Callable[[Changes], None]) -> Trace:
    """Return the trace with another commit at the position."""
    event: Any = trace[at]
    changes = freeze(event.changes)
    change(changes)
    return put(trace, at, changed(event, changes=changes))


def edit_end(trace: Trace, change: Callable[[list[Job]], list[Job]]) -> Trace:
    end: Any = trace[-1]
    return [*trace[:-1], changed(end, jobs=tuple(change(list(end.jobs))))]


def acknowledged(trace: Trace) -> list[int]:
    return [item.job.id for item in History(trace).submitted if item.result == "new" and item.job]


# Jobs.


def drop_a_job(trace: Trace, random: Random) -> Trace:
    ident = random.choice(acknowledged(trace))
    return edit_end(trace, lambda jobs: [job for job in jobs if job.id != ident])


def acknowledge_too_soon(trace: Trace, random: Random) -> Trace:
    """The reply comes before the commit of its job."""
    ident = random.choice(acknowledged(trace))
    history = History(trace)
    stored = history.rows[ident][0][0]
    item = next(i for i in history.submitted if i.job is not None and i.job.id == ident)
    assert item.answered is not None
    rest = [event for event in trace if event is not item.answered]
    return [*rest[:stored], item.answered, *rest[stored:]]


def start_before_durable(trace: Trace, random: Random) -> Trace:
    at = random.choice(positions(trace, Started, lambda event: event.lease.key.attempt == 1))
    event: Any = trace[at]
    stored = History(trace).rows[event.lease.key.job_id][0][0]
    rest = [*trace[:at], *trace[at + 1 :]]
    return [*rest[:stored], event, *rest[stored:]]


def run_a_refused_submit(trace: Trace, random: Random) -> Trace:
    refused = [i for i in History(trace).submitted if i.result in ("refused", "conflict")]
    payload = random.choice(refused).spec.payload
    at = positions(trace, Stored, lambda event: True)[-1]
    job = Job(id=1, payload=payload, state=State.COMPLETED)
    return edit(trace, at, lambda changes: changes.jobs.update({1: job}))


def duplicate_a_job(trace: Trace, random: Random) -> Trace:
    ident = random.choice(acknowledged(trace))
    at, job = History(trace).rows[ident][0]
    twin = changed(job, id=ident + 1_000_000)
    return edit(trace, at, lambda changes: changes.jobs.update({twin.id: twin}))


def start_twice(trace: Trace, random: Random) -> Trace:
    """A second worker gets the next attempt while the first one still runs."""
    at = random.choice(positions(trace, Started, lambda event: True))
    event: Any = trace[at]
    key = event.lease.key._replace(attempt=event.lease.key.attempt + 1)
    again = changed(event, connection=event.connection + 1, lease=replace(event.lease, key=key))
    return put(trace, at, event, again)


def run_a_completed_job_again(trace: Trace, random: Random) -> Trace:
    done = positions(
        trace, Reported, lambda event: event.is_live and isinstance(event.outcome, Completed)
    )
    at = random.choice(done)
    report: Any = trace[at]
    start: Any = trace[positions(trace, Started, lambda event: event.lease.key == report.key)[0]]
    key = report.key._replace(attempt=report.key.attempt + 1)
    again = changed(start, at=report.at, wall=report.wall, lease=replace(start.lease, key=key))
    return put(trace, at, report, again)


def give_an_old_attempt(trace: Trace, random: Random) -> Trace:
    at = random.choice(positions(trace, Started, lambda event: event.lease.key.attempt > 1))
    event: Any = trace[at]
    key = event.lease.key._replace(attempt=event.lease.key.attempt - 1)
    return put(trace, at, changed(event, lease=replace(event.lease, key=key)))


def give_a_stale_epoch(trace: Trace, random: Random) -> Trace:
    at = random.choice(positions(trace, Started, lambda event: True))
    event: Any = trace[at]
    key = event.lease.key._replace(epoch=event.lease.key.epoch - 1)
    return put(trace, at, changed(event, lease=replace(event.lease, key=key)))


def open_with_an_old_epoch(trace: Trace, random: Random) -> Trace:
    at = positions(trace, Opened, lambda event: True)[0]
    event: Any = trace[at]
    twin = changed(event, server=event.server + 1)
    return put(trace, at, event, Died(event.at, event.wall, event.server), twin)


def shift_early(trace: Trace, random: Random) -> Trace:
    """A delayed job starts a second before its time, right after its commit."""
    history = History(trace)
    late = [
        item.job.id
        for item in history.submitted
        if item.result == "new"
        and item.job is not None
        and item.spec.delay_us > 5_000_000
        and item.job.id in history.starts
        and item.job.id not in history.moved
    ]
    ident = random.choice(late)
    at, event = history.starts[ident][0]
    stored, job = history.rows[ident][0]
    wall = job.due_at - 1_000_000
    rest = [*trace[:at], *trace[at + 1 :]]
    index = next(i for i, seen in enumerate(rest) if i > stored and seen.wall > wall)
    back = event.wall - wall
    return [*rest[:index], changed(event, wall=wall, at=event.at - back), *rest[index:]]


def repeat_what_runs_once(trace: Trace, random: Random) -> Trace:
    once = positions(trace, Started, lambda event: event.lease.options.at_most_once)
    at = random.choice(once)
    event: Any = trace[at]
    key = event.lease.key._replace(attempt=event.lease.key.attempt + 1)
    return put(trace, at, event, changed(event, lease=replace(event.lease, key=key)))


def revive_an_ended_job(trace: Trace, random: Random) -> Trace:
    history = History(trace)
    ended = [
        (ident, rows[-1])
        for ident, rows in history.rows.items()
        if rows[-1][1].is_final and ident not in history.retried
    ]
    ident, (last, job) = random.choice(ended)
    later = positions(trace, Stored, lambda event: True)[-1]
    twin = changed(job, state=State.QUEUED, attempt=job.attempt + 1)
    if later == last:
        event: Any = trace[last]
        return put(trace, last, event, changed(event, changes=Changes(jobs={ident: twin})))
    return edit(trace, later, lambda changes: changes.jobs.update({ident: twin}))


def complete_a_cancelled_job(trace: Trace, random: Random) -> Trace:
    history = History(trace)
    cancelled = {
        called.subject[0]
        for _, called, _, answer in history.calls_of("cancel")
        if answer is not None and answer.code is None
    }
    ident = random.choice(sorted(cancelled - history.retried.keys()))

    def complete(jobs: list[Job]) -> list[Job]:
        return [changed(job, state=State.COMPLETED) if job.id == ident else job for job in jobs]

    return edit_end(trace, complete)


def fail_once_too_often(trace: Trace, random: Random) -> Trace:
    failing = positions(
        trace, Stored, lambda event: any(job.failures for job in event.changes.jobs.values())
    )
    at = random.choice(failing)

    def count(changes: Changes) -> None:
        for job in changes.jobs.values():
            if job.failures:
                job.failures += 100

    return edit(trace, at, count)


def start_an_expired_job(trace: Trace, random: Random) -> Trace:
    history = History(trace)
    mortal = [
        (at, event)
        for ident, starts in history.starts.items()
        for at, event in starts
        if ident not in history.retried
        and history.rows[ident][0][1].expires_at is not None
        and _is_plain(event)
    ]
    at, event = random.choice(mortal)
    first, row = history.rows[event.lease.key.job_id][0]
    assert row.expires_at is not None, "it is mortal"
    elapsed = row.expires_at - history.offset_at(first) - history.began_at
    return put(trace, at, changed(event, wall=row.expires_at, at=elapsed))


def stop_too_soon(trace: Trace, random: Random) -> Trace:
    remote = _remote(trace)
    starts = {
        event.lease.key: event
        for event in trace
        if isinstance(event, Started) and _is_plain(event) and event.connection not in remote
    }
    stops = positions(
        trace,
        StopSent,
        lambda event: event.stop.reason is StopReason.TIMEOUT and event.stop.key in starts,
    )
    at = random.choice(stops)
    event: Any = trace[at]
    return put(trace, at, changed(event, at=starts[event.stop.key].at + 1))


def _remote(trace: Trace) -> set[int]:
    """Return the connections of remote workers, whose stops may wait for a commit."""
    return {event.connection for event in trace if isinstance(event, Attached) and not event.server}


def _is_plain(event: Started) -> bool:
    """Return whether the attempt was dispatched as soon as it was decided."""
    return not event.lease.options.at_most_once and len(event.lease.payload or b"") < 100


def never_stop(trace: Trace, random: Random) -> Trace:
    breaks = [event.at for event in trace if isinstance(event, Detached | Died | Opened)]
    remote = _remote(trace)
    held = {
        event.lease.key
        for event in trace
        if isinstance(event, Started) and event.connection in remote
    }
    stops = positions(
        trace,
        StopSent,
        lambda event: (
            event.stop.reason is StopReason.TIMEOUT
            and event.stop.key not in held
            and not any(event.at - 60_000_000 < at < event.at + 6_000_000 for at in breaks)
        ),
    )
    key = trace[random.choice(stops)].stop.key  # type: ignore[attr-defined]
    silent = {
        StopSent: lambda event: event.stop.key == key,
        Reported: lambda event: event.key == key,
    }
    return [e for e in trace if not (type(e) in silent and silent[type(e)](e))]


def exceed_a_limit(trace: Trace, random: Random) -> Trace:
    """The concurrency of the queue was less than the number of its running jobs."""
    at = random.choice(_crowded(trace))
    event: Any = trace[at]
    queue = Queue(event.lease.queue, concurrency=1)
    called = Called(event.at, event.wall, 100_000, "set_queue", queue)
    return put(trace, at, called, Answered(event.at, event.wall, 100_000, queue), event)


def start_in_a_paused_queue(trace: Trace, random: Random) -> Trace:
    at = random.choice(positions(trace, Started, _is_plain))
    event: Any = trace[at]
    called = Called(event.at, event.wall, 100_000, "pause_queue", event.lease.queue)
    event_queue = Queue(event.lease.queue, paused=True)
    return put(trace, at, called, Answered(event.at, event.wall, 100_000, event_queue), event)


def _crowded(trace: Trace) -> list[int]:
    """Return a position at which an attempt starts while another one of its queue runs."""
    live: dict[Any, str] = {}
    found = []
    for at, event in enumerate(trace):
        if isinstance(event, Started):
            lease = event.lease
            if lease.queue in live.values() and _is_plain(event):
                found.append(at)
            live[lease.key] = lease.queue
        elif isinstance(event, Reported) and event.is_live:
            live.pop(event.key, None)
        elif type(event).__name__ in ("Detached", "Died"):
            live.clear()
    return found


def share_a_key(trace: Trace, random: Random) -> Trace:
    history = History(trace)
    holders = [
        rows[0]
        for ident, rows in history.rows.items()
        if ident not in history.retried
        and rows[0][1].options.unique is not None
        and len(rows[0][1].options.unique.states) == 5
        and not rows[0][1].is_final
    ]
    at, job = random.choice(holders)
    twin = changed(job, id=job.id + 1_000_000)
    return edit(trace, at, lambda changes: changes.jobs.update({twin.id: twin}))


# The server.


def forget_a_caller(trace: Trace, random: Random) -> Trace:
    at = random.choice(positions(trace, Answered, lambda event: True))
    return [*trace[:at], *trace[at + 1 :]]


def lose_sight_of_a_job(trace: Trace, random: Random) -> Trace:
    asked = positions(trace, Called, lambda event: event.name in ("get", "cancel"))
    call = trace[random.choice(asked)].call  # type: ignore[attr-defined]
    at = positions(trace, Answered, lambda event: event.call == call)[0]
    return put(trace, at, changed(trace[at], value=None, code="not-found", status=404))


def leave_a_job_unfinished(trace: Trace, random: Random) -> Trace:
    end: Any = trace[-1]
    ident = random.choice([job.id for job in end.jobs])

    def revive(jobs: list[Job]) -> list[Job]:
        return [changed(job, state=State.RUNNING) if job.id == ident else job for job in jobs]

    return edit_end(trace, revive)


def contradict_the_disk(trace: Trace, random: Random) -> Trace:
    end: Any = trace[-1]
    ident = random.choice([job.id for job in end.jobs])

    def fake(jobs: list[Job]) -> list[Job]:
        return [changed(job, attempt=job.attempt + 1) if job.id == ident else job for job in jobs]

    return edit_end(trace, fake)


def hold_too_much(trace: Trace, random: Random) -> Trace:
    at = random.choice(positions(trace, Probed, lambda event: True))
    event: Any = trace[at]
    return put(trace, at, changed(event, held=event.bound + 1))


def end_too_soon(trace: Trace, random: Random) -> Trace:
    return [event for event in trace if not isinstance(event, Ended)]
