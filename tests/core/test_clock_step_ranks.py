"""The order of ready jobs when the wall clock is set."""

from __future__ import annotations

from schedo.core.commands import Reschedule
from tests.core.builders import HOUR, MINUTE, make_spec, worker_spec
from tests.core.server import Server
from tests.core.test_clock_steps import CAPACITIES, NOW, STEPS


@STEPS
@CAPACITIES
def test_a_job_that_is_due_at_an_instant_stands_among_those_that_come_then(
    step: int, capacity: int
) -> None:
    server = Server(capacity, now=NOW, slots=0)
    due = NOW + 2 * HOUR
    timed = [server.submit(make_spec(run_at=due), NOW) for _ in range(3)]
    server.settle(NOW)

    server.follow_clock(step)
    before, after = [server.submit(make_spec(), due + each) for each in (-1, 1)]
    server.settle(due + 1)

    server.attach(worker_spec(slots=1))
    order = []
    while running := server.run(due + 1):
        order += running
        server.complete(running[0], due + 1)

    assert order == [before.id, *(job.id for job in timed), after.id]


@STEPS
def test_a_job_whose_priority_is_raised_after_a_step_goes_ahead_of_the_others(step: int) -> None:
    server = Server(now=NOW, slots=0)
    first, second = [server.submit(make_spec(), NOW) for _ in range(2)]
    server.settle(NOW)

    server.follow_clock(step)
    server.change(Reschedule(second.id, priority=1), NOW + step)
    server.change(Reschedule(first.id, priority=-1), NOW + step)
    later = server.submit(make_spec(), NOW + step)
    server.settle(NOW + step)

    ranks = [server.job(job.id).rank for job in (second, later, first)]
    assert ranks == [NOW - MINUTE, NOW, NOW + MINUTE]
