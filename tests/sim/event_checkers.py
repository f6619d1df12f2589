"""The invariants of event jobs: one for each failure, one for each break and each return."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from schedo.core.expectations import Expectation, ExpectationState
from schedo.core.ids import render_id
from schedo.core.instants import render_instant
from schedo.core.model import Job, Trigger
from schedo.core.states import State
from tests.sim.history import History
from tests.sim.trace import Stored

Findings = Iterator[str]
_EXPECTED = (Trigger.ON_MISS, Trigger.ON_BACK)


def facts_of(job: Job, name: str) -> dict[str, Any]:
    """Return the facts in the payload of an event job."""
    assert job.payload is not None, "the payload of a new job is in its row"
    facts: dict[str, Any] = json.loads(job.payload)[name]
    return facts


def a_failure_makes_one_event_job(history: History) -> Findings:
    """A job that fails and names an event job makes one, in the same commit, and no other does."""
    seen: set[tuple[str, str]] = set()
    ended: dict[int, int | None] = {}
    for position, event in history.of(Stored):
        changed = event.changes.jobs.values()
        made = _new_events(history, position, event, Trigger.ON_FAILURE)
        pairs = [(facts["id"], facts["at"]) for facts in (facts_of(job, "failed") for job in made)]
        for pair in pairs:
            if pair in seen or pairs.count(pair) > 1:
                yield f"the failure of {pair} made two event jobs"
        seen.update(pairs)
        for job in changed:
            failed_at = job.ended_at if job.state is State.FAILED else None
            if failed_at is None or ended.get(job.id) == failed_at:
                continue
            ended[job.id] = failed_at
            wants = job.options.on_failure is not None
            pair = (render_id(job.id), render_instant(failed_at))
            if wants != (pair in pairs) and not (wants and pair in seen):
                yield f"job {job.id} failed at {position} and its event job is wrong: {wants}"


def breaks_and_returns_alternate(history: History) -> Findings:
    """After each commit an expectation is missed if it has one more on_miss job than on_back."""
    names: dict[int, str] = {}
    balance: dict[str, int] = {}
    for position, event in history.of(Stored):
        changed: dict[int, Expectation | None] = event.changes.expectations
        gone = {names[ident] for ident, each in changed.items() if each is None and ident in names}
        names |= {ident: each.name for ident, each in changed.items() if each is not None}
        made = [job for each in _EXPECTED for job in _new_events(history, position, event, each)]
        for job in made:
            name = facts_of(job, "expectation")["schedule"]
            balance[name] = balance.get(name, 0) + (1 if job.trigger is Trigger.ON_MISS else -1)
        balance |= dict.fromkeys(gone, 0)  # another one of the same name begins as ok
        for each in changed.values():
            if each is None or each.name in gone:
                continue
            expected = 1 if each.state is ExpectationState.MISSED else 0
            if balance.get(each.name, 0) != expected:
                yield (
                    f"expectation {each.name} is {each.state} at {position}, but its jobs say"
                    f" {balance.get(each.name, 0)}"
                )
                balance[each.name] = expected


def _new_events(history: History, position: int, event: Stored, trigger: Trigger) -> list[Job]:
    return [
        job
        for job in event.changes.jobs.values()
        if job.trigger is trigger and history.rows[job.id][0][0] == position
    ]


CHECKERS = (a_failure_makes_one_event_job, breaks_and_returns_alternate)
