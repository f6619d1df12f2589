"""The uncommitted changes are scanned once per delivery, however many pages it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schedo.core.commands import PutSchedule, Submit
from schedo.core.loads import LoadSchedule
from schedo.core.model import Job
from tests.core.builders import T0, make_schedule_spec, make_spec, worker_spec
from tests.core.server import Server


class Counted(dict[int, Job]):
    """Uncommitted records that count how often they are scanned."""

    passes = 0

    def values(self) -> Any:
        self.passes += 1
        return super().values()

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return super().__iter__()


def uncommitted(server: Server) -> Counted:
    """Submit jobs that are not committed yet, and count from now on."""
    server.send(Submit([make_spec()] * 100), T0)
    changes = server.scheduler._jobs.changes
    changes.jobs = counted = Counted(changes.jobs)
    return counted


def test_many_pages_cost_one_scan_of_the_uncommitted_changes() -> None:
    server = Server(capacity=4, slots=0)
    server.submit_all([make_spec(queue=f"q{n % 8}") for n in range(200)])
    for _ in range(3):
        server.round(T0)
    server.attach(worker_spec(slots=16))
    server.tick(T0)
    server.take()
    server.commit()
    server.fetch()
    assert len(server.fetched) > 1
    counted = uncommitted(server)

    server.deliver(T0)

    assert counted.passes == 1


def test_a_new_schedule_costs_no_scan_of_the_uncommitted_changes() -> None:
    server = Server()
    counted = uncommitted(server)

    for number in range(10):
        spec = make_schedule_spec(f"s{number}")
        server.scheduler.apply(PutSchedule(spec), T0, {LoadSchedule(spec.name): None})

    assert counted.passes == 0
