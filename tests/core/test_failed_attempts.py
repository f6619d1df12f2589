"""The scheduler notes each attempt that failed or was lost, and what happens to its job."""

from __future__ import annotations

import pytest

from schedo.core.leases import Blame, Completed, Failed, Lost, Outcome, Snoozed
from schedo.core.model import Failure, Retry
from schedo.core.states import State
from tests.core.builders import T0, make_spec
from tests.core.server import Server

OOPS = Failure("oops", "it broke")


@pytest.mark.parametrize(
    ("outcome", "noted"),
    [
        (Failed(OOPS), [("failed", State.RETRYING, 1)]),
        (Failed(OOPS, retryable=False), [("failed", State.FAILED, 1)]),
        (Lost("gone", Blame.NONE), [("lost", State.QUEUED, 0)]),
        (Completed(), []),
        (Snoozed(1_000_000), []),
    ],
    ids=["failed", "given up", "lost", "completed", "snoozed"],
)
def test_attempts_that_failed_or_were_lost_are_noted_once(
    outcome: Outcome, noted: list[tuple[str, State, int]]
) -> None:
    server = Server()
    job = server.submit(make_spec(retry=Retry(max_attempts=3)))
    server.run(T0)

    server.report(job.id, outcome, T0)

    failed = server.scheduler.take_notes().failed
    assert [(each.outcome, each.state, each.failures) for each in failed] == noted
    assert all((each.job_id, each.attempt, each.failures_max) == (job.id, 1, 3) for each in failed)
    assert server.scheduler.take_notes().failed == []
