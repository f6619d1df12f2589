"""The invariants of every history, one function for each; each yields the violations as sentences.

This module has the invariants of jobs, replies and the server; the modules *_checkers.py have the
others. All of them use only the trace (see trace.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from schedo.core.limits import LOSSES_MAX
from schedo.core.model import Job, Retry, Trigger, Unique
from schedo.core.states import State
from tests.sim import (
    attempt_checkers,
    event_checkers,
    operation_checkers,
    schedule_checkers,
    timeout_checkers,
)
from tests.sim.history import History
from tests.sim.trace import Broke, Probed, Stored, Trace

Findings = Iterator[str]


def nothing_acknowledged_is_lost(history: History) -> Findings:
    """A job is on disk before its submit is acknowledged; at the end it exists or was pruned."""
    last = history.end
    kept = {job.id for job in last.jobs} if last is not None else set()
    for _, called, answered, answer in history.calls_of("submit"):
        if answer is None or answer.code is not None or answered is None:
            continue
        for result, job in answer.value:
            if result == "refused":
                continue
            rows = history.rows.get(job.id)
            if not rows or rows[0][0] > answered:
                yield f"job {job.id} of call {called.call} was acknowledged before it was durable"
            if job.id not in kept and job.id not in history.gone:
                yield f"job {job.id} of call {called.call} was acknowledged and is lost"


def acknowledged_jobs_are_found(history: History) -> Findings:
    """An acknowledged job can be read until it is pruned."""
    for _, called, _, answer in history.calls_of("get", "wait", "cancel", "retry", "run_now"):
        is_missing = answer is not None and answer.code == "not-found"
        if is_missing and called.subject[0] not in history.gone:
            yield f"call {called.call}: job {called.subject[0]} was not found"


def every_call_is_answered(history: History) -> Findings:
    """Every call gets a reply."""
    for number, (_, called) in history.calls.items():
        if number not in history.answers:
            yield f"call {number} ({called.name}) was never answered"


def one_submit_makes_one_job(history: History) -> Findings:
    """An accepted spec makes one job, a refused one none, an unknown outcome at most one."""
    made: dict[bytes, set[int]] = defaultdict(set)
    for ident, rows in history.rows.items():
        first = rows[0][1]
        if first.trigger is Trigger.SUBMIT and first.payload is not None:
            made[first.payload].add(ident)
    for item in history.submitted:
        ids = made.pop(item.spec.payload, set())
        expected = {"new": (1, 1), "unknown": (0, 1)}.get(item.result, (0, 0))
        if not expected[0] <= len(ids) <= expected[1]:
            yield f"call {item.called.call}: {item.result}, but there are {len(ids)} jobs of it"
        elif item.result == "new" and item.job is not None and {item.job.id} != ids:
            yield f"call {item.called.call}: its job has another id"
    for payload, ids in made.items():
        yield f"no client submitted {payload[:20]!r}, but there are {len(ids)} jobs of it"


def ended_jobs_stay_ended(history: History) -> Findings:
    """The row of an ended job changes only after a client requested a retry."""
    for ident, rows in history.rows.items():
        for (before, old), (after, new) in pairwise(rows):
            if ident in history.retried_in_bulk and old.state is not State.COMPLETED:
                continue
            if not old.is_final or _essence(old) == _essence(new):
                continue
            if not any(asked < after for asked in history.retried.get(ident, ())):
                yield f"job {ident} was {old.state} at {before} and {new.state} at {after}"


def _essence(job: Job) -> tuple[object, ...]:
    return (job.state, job.attempt, job.epoch, job.ended_at, job.result, job.failure, job.failures)


def an_acknowledged_cancel_holds(history: History) -> Findings:
    """An acknowledged cancel ends the job, unless a client retries it afterwards."""
    ended = {job.id: job.state for job in history.end.jobs} if history.end is not None else {}
    for _, called, answered, answer in history.calls_of("cancel"):
        if answer is None or answered is None or answer.code is not None:
            continue
        ident = called.subject[0]
        if ident in history.retried_in_bulk:
            continue
        asked_at = history.calls[called.call][0]
        retries = [at for at in history.retried.get(ident, ()) if at > asked_at]
        retries += [
            at
            for at, call, done, _ in history.calls_of("retry")
            if call.subject[0] == ident and at < asked_at and (done is None or done > asked_at)
        ]
        if not retries and ended.get(ident, State.CANCELLED) is not State.CANCELLED:
            yield f"job {ident} was cancelled by call {called.call}, and is {ended[ident]}"
        if answer.value.state is State.CANCELLED and not retries:
            for position, event in history.starts.get(ident, ()):
                if position > answered:
                    yield f"{event.lease.key} was started after it was cancelled"


def budgets_hold(history: History) -> Findings:
    """Failures and losses stay within their limits."""
    for ident, rows in history.rows.items():
        for _, job in rows:
            most = (job.options.retry or Retry()).max_attempts
            if job.failures > most or job.losses > LOSSES_MAX:
                yield f"job {ident} has {job.failures} failures and {job.losses} losses"
                break


def unique_keys_are_unique(history: History) -> Findings:
    """No other unfinished job holds the unique key of a new job."""
    jobs: dict[int, Job] = {}
    by_key: dict[str, set[int]] = defaultdict(set)
    for position, event in history.of(Stored):
        new = [job for job in event.changes.jobs.values() if job.id not in jobs]
        jobs.update(event.changes.jobs)
        for job in new:
            unique = job.options.unique
            if unique is None or job.schedule_id is not None:
                continue
            rivals = by_key[unique.key]
            if len(unique.states) < len(Unique("").states):
                rivals.clear()  # a submit with fewer states in `while` may take the key over
            for ident in rivals:
                if jobs[ident].is_final or ident in history.retried_in_bulk:
                    continue
                if ident not in history.retried:
                    yield f"jobs {ident} and {job.id} hold key {unique.key} at {position}"
            rivals.add(job.id)


def everything_comes_to_an_end(history: History) -> Findings:
    """After the last fault, every job ends, and no job runs."""
    if history.end is None:
        yield "the world did not reach its end"
        return
    for job in history.end.jobs:
        is_ahead = job.state is State.SCHEDULED and job.due_at > history.end.wall
        if is_ahead and not job.due_elapsed:
            continue  # its instant is in the future, because the clock was set back
        if not job.is_final:
            yield f"job {job.id} is still {job.state} (attempt {job.attempt}, due {job.due_at})"
    if history.end.running:
        yield f"the server says that {history.end.running} jobs run"


def server_and_disk_agree(history: History) -> Findings:
    """The server's memory agrees with the disk, at the end and at each probe."""
    for _, event in history.of(Probed):
        yield from event.contradictions
    for job in history.end.jobs if history.end is not None else ():
        stored = history.rows[job.id][-1][1]
        if _essence(stored) != _essence(job):
            yield f"job {job.id} is {stored.state} on disk, and the server says {job.state}"


def memory_is_bounded(history: History) -> Findings:
    """The server holds no more records than its paged indexes and its running jobs need."""
    for _, event in history.of(Probed):
        if event.held > event.bound:
            yield f"{event.held} records are in memory, and {event.bound} are allowed"


def nothing_breaks(history: History) -> Findings:
    """The server logs no internal error."""
    for _, event in history.of(Broke):
        yield event.text


Checker = Callable[[History], Findings]
CHECKERS: tuple[Checker, ...] = (
    nothing_breaks,
    nothing_acknowledged_is_lost,
    acknowledged_jobs_are_found,
    every_call_is_answered,
    one_submit_makes_one_job,
    ended_jobs_stay_ended,
    an_acknowledged_cancel_holds,
    budgets_hold,
    unique_keys_are_unique,
    everything_comes_to_an_end,
    server_and_disk_agree,
    memory_is_bounded,
    *attempt_checkers.CHECKERS,
    *timeout_checkers.CHECKERS,
    *operation_checkers.CHECKERS,
    *schedule_checkers.CHECKERS,
    *event_checkers.CHECKERS,
)


def check(trace: Trace) -> list[str]:
    """Return all violations in the trace, each with the name of its invariant."""
    history = History(trace)
    return [
        f"{checker.__name__}: {finding}" for checker in CHECKERS for finding in checker(history)
    ]
