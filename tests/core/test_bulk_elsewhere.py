"""The jobs of an operation that other servers of a cluster have changed."""

from __future__ import annotations

from schedo.core.bulk import BulkAction
from schedo.core.bulk_commands import BeginBulk, CountedBulk, Outcomes, StepBulk
from schedo.core.job_filter import JobFilter
from schedo.core.states import State
from tests.core.builders import SECOND, T0, make_spec
from tests.core.server import Server

T1 = T0 + SECOND


def test_a_step_counts_the_jobs_that_other_servers_have_changed() -> None:
    server = Server(slots=0)
    mine = server.submit(make_spec(queue="mail")).id
    operation = server.apply(BeginBulk(BulkAction.CANCEL, JobFilter(queue="mail")), T1)
    server.apply(CountedBulk(operation.id, 10), T1)

    elsewhere = Outcomes(done=4, skipped=3, failed=2)
    ended = server.apply(StepBulk(operation.id, operation.before, (mine,), None, elsewhere), T1)

    assert (ended.done, ended.skipped, ended.failed, ended.errors) == (5, 3, 2, ())
    assert server.state(mine) is State.CANCELLED
