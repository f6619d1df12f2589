"""Mutations of a good trace that concern operations on many jobs; see mutations.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random

from msgspec.structs import replace

from schedo.core.bulk import BulkOperation, BulkState
from schedo.core.changes import Changes
from schedo.core.states import State
from tests.sim.history import History
from tests.sim.mutations import edit
from tests.sim.trace import Stored, Trace


def steps_of_operations(trace: Trace) -> list[tuple[int, int, BulkOperation]]:
    """Return the position, the number of jobs done and the record of each step that did some."""
    return [
        (position, after.done - before.done, after)
        for versions in History(trace).operations.values()
        for (_, before), (position, after) in pairwise(versions)
        if after.done > before.done
    ]


def count_a_job_too_many(trace: Trace, random: Random) -> Trace:
    at, _, operation = random.choice(steps_of_operations(trace))

    def count(changes: Changes) -> None:
        jobs = len(changes.jobs) + len(History(trace).rows)  # also those that are stopping
        more = replace(operation, done=operation.done + jobs + 1)
        changes.bulk_operations = {operation.id: more}

    return edit(trace, at, count)


def leave_an_operation_running(trace: Trace, random: Random) -> Trace:
    number = random.choice(list(History(trace).operations))
    at, last = History(trace).operations[number][-1]
    running = replace(last, state=BulkState.RUNNING)
    return edit(trace, at, lambda changes: changes.bulk_operations.update({number: running}))


def miss_a_job(trace: Trace, random: Random) -> Trace:
    """A job that an operation has cancelled is as it was before."""
    at, ident = random.choice(list(_cancelled(History(trace))))

    def drop(changes: Changes) -> None:
        changes.jobs.pop(ident, None)

    for place in range(at, len(trace)):
        if type(trace[place]) is Stored:
            trace = edit(trace, place, drop)
    return trace


def _cancelled(history: History) -> Iterator[tuple[int, int]]:
    """Yield the jobs that operations have cancelled as they were when the operation began."""
    for versions in history.operations.values():
        began, first = versions[0]
        if first.action != "cancel" or versions[-1][1].state is not BulkState.DONE:
            continue
        for ident, rows in history.rows.items():
            for (before, old), (after, _) in pairwise(rows):
                is_mine = before <= began < after and ident < first.id and ident not in history.gone
                is_done = is_mine and after <= versions[-1][0]
                if is_done and first.which.matches(old) and old.state is State.QUEUED:
                    yield after, ident
