"""Mutations that make the event jobs of a good trace wrong; see mutations.py."""

from __future__ import annotations

from random import Random
from typing import Any

from schedo.core.changes import Changes
from schedo.core.model import Job, Trigger
from tests.sim.history import History
from tests.sim.mutations import changed, edit
from tests.sim.trace import Trace


def _edit_event(trace: Trace, random: Random, trigger: Trigger, *, twice: bool) -> Trace:
    """Drop a new event job from its commit, or add a second one."""
    rows = History(trace).rows.values()
    at, job = random.choice([each[0] for each in rows if each[0][1].trigger is trigger])
    twin: Job = changed(job, id=job.id + 1_000_000)

    def change(changes: Changes) -> Any:
        return changes.jobs.update({twin.id: twin}) if twice else changes.jobs.pop(job.id)

    return edit(trace, at, change)


def lose_the_job_of_a_failure(trace: Trace, random: Random) -> Trace:
    return _edit_event(trace, random, Trigger.ON_FAILURE, twice=False)


def double_the_job_of_a_failure(trace: Trace, random: Random) -> Trace:
    return _edit_event(trace, random, Trigger.ON_FAILURE, twice=True)


def lose_the_job_of_a_break(trace: Trace, random: Random) -> Trace:
    return _edit_event(trace, random, Trigger.ON_MISS, twice=False)


def double_the_job_of_a_return(trace: Trace, random: Random) -> Trace:
    return _edit_event(trace, random, Trigger.ON_BACK, twice=True)
