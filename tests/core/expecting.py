"""Helpers for the tests of expectations."""

from __future__ import annotations

import json
from typing import Any

from schedo.core.expectations import Expectation, ExpectationState
from schedo.core.leases import Failed
from schedo.core.model import (
    Decision,
    Expect,
    Failure,
    Job,
    OnFailure,
    Trigger,
)
from tests.core.builders import (
    SECOND,
)
from tests.core.server import Server

WITHIN = Expect(
    within_us=30 * SECOND, on_miss=OnFailure("alert", b'{"a":1}'), on_back=OnFailure("all-clear")
)
OK, MISSED = ExpectationState
GIVE_UP = Failed(Failure("oops", "it broke"), retryable=False)


def of(server: Server, ident: int) -> Expectation:
    known = server.scheduler.expectations.find(ident)
    assert known is not None
    return known


def event_jobs(server: Server) -> list[Job]:
    jobs = {**server.store.jobs, **server.scheduler._jobs.changes.jobs}
    triggers = (Trigger.ON_MISS, Trigger.ON_BACK)
    return [jobs[ident] for ident in sorted(jobs) if jobs[ident].trigger in triggers]


def tasks(server: Server) -> list[str]:
    return [job.task for job in event_jobs(server)]


def facts(job: Job) -> dict[str, Any]:
    assert job.payload is not None
    found: dict[str, Any] = json.loads(job.payload)["expectation"]
    return found


def decisions(server: Server, ident: int) -> list[tuple[Decision, int, int]]:
    ours = (Decision.EXPECTATION_MISSED, Decision.EXPECTATION_BACK)
    return [each for each in server.decisions(ident) if each[0] in ours]


def run_through(server: Server, now: int) -> None:
    """Complete every run that starts at `now`, at once."""
    for job_id in server.run(now):
        if server.job(job_id).trigger is not Trigger.ON_MISS:
            server.complete(job_id, now)
    server.settle(now)
