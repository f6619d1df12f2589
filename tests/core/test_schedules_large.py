"""Schedules with large payloads: memory holds few of them, and each run has its payload."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from schedo.core.commands import PutSchedule
from schedo.core.limits import (
    PAYLOAD_BYTES_MAX,
    PAYLOAD_INLINE_BYTES_MAX,
    SCHEDULE_PAYLOADS_BYTES_MAX,
)
from schedo.core.model import Overlap, Rule
from schedo.core.states import State
from tests.core.builders import HOUR, MINUTE, SECOND, every, make_schedule_spec, make_spec
from tests.core.scheduled import T1, made
from tests.core.server import Server

LARGE = b"1" * PAYLOAD_BYTES_MAX


def held_payload_bytes(server: Server) -> int:
    """Return the size of the payloads of all schedules in memory."""
    schedules = server.scheduler._schedule_table._schedules.values()
    return sum(len(schedule.spec.job.payload) for schedule in schedules)


def with_large_payloads(server: Server, count: int, rule: Callable[[int], Rule]) -> list[int]:
    """Put `count` schedules whose payloads have the maximum size; return their ids."""
    job = make_spec(payload=LARGE)
    ids = []
    for number in range(count):
        spec = make_schedule_spec(f"s{number}", rule(number), job=job, overlap=Overlap.ALLOW)
        ids.append(server.put(spec, T1).id)
        server.round(T1)
        assert held_payload_bytes(server) <= SCHEDULE_PAYLOADS_BYTES_MAX
    return ids


def test_memory_holds_few_large_payloads_of_schedules_and_every_run_has_its_payload() -> None:
    server = Server(slots=0)
    ids = with_large_payloads(server, 30, lambda n: Rule(at=(30 - n) * MINUTE))

    for minute in range(1, 31):
        server.settle(minute * MINUTE)
        assert held_payload_bytes(server) <= SCHEDULE_PAYLOADS_BYTES_MAX

    runs = [server.runs(ident) for ident in ids]
    assert [[run.scheduled_for for run in of] for of in runs] == [
        [n * MINUTE] for n in range(30, 0, -1)
    ]
    assert all(run.payload == LARGE for [run] in runs)


def test_memory_holds_few_large_payloads_of_schedules_that_fire_each_second() -> None:
    server = Server(slots=0)
    ids = with_large_payloads(server, 30, lambda n: every(1))

    for second in range(1, 4):
        server.settle(second * SECOND)
        assert held_payload_bytes(server) <= SCHEDULE_PAYLOADS_BYTES_MAX

    assert all(server.runs(ident)[-1].scheduled_for == 3 * SECOND for ident in ids)


def test_memory_holds_few_large_payloads_of_overdue_schedules() -> None:
    server = Server(slots=0)
    ids = with_large_payloads(server, 30, lambda n: Rule(at=MINUTE + n))
    server.crash(HOUR)

    for _ in range(40):
        server.tick(HOUR)
        server.round(HOUR)
        assert held_payload_bytes(server) <= 2 * SCHEDULE_PAYLOADS_BYTES_MAX

    assert [len(server.runs(ident)) for ident in ids] == [1] * 30


def test_a_schedule_that_gets_a_large_payload_evicts_other_schedules() -> None:
    server = Server(slots=0)
    for number in range(30):
        made(server, name=f"s{number}", rule=every(60))

    with_large_payloads(server, 30, lambda n: every(60))
    server.settle(MINUTE)

    assert len(server.store.jobs) == 30
    assert all(job.payload == LARGE for job in server.store.jobs.values())


def test_all_blocked_runs_of_schedules_with_large_payloads_go_after_a_crash() -> None:
    server = Server(slots=0)
    job = make_spec(payload=LARGE)
    specs = [
        make_schedule_spec(
            f"s{n}", every(60, end_at=2 * MINUTE), job=job, overlap=Overlap.BUFFER_ONE
        )
        for n in range(10)
    ]
    ids = []
    for spec in specs:
        ids.append(server.put(spec, T1).id)
        server.round(T1)
    server.settle(MINUTE)
    server.settle(2 * MINUTE)

    server.crash(150 * SECOND)
    server.settle(150 * SECOND)
    for ident in ids:
        server.cancel(server.runs(ident)[0].id, 151 * SECOND)
    server.settle(151 * SECOND)

    assert {server.state(server.runs(ident)[1].id) for ident in ids} == {State.QUEUED}


def test_the_payloads_in_memory_are_measured_once_for_each_commit() -> None:
    """A declaration arms up to 1,000 schedules in one turn: a measurement for each is quadratic."""
    server = Server(slots=0)
    order = server.scheduler._schedule_table.order
    measured, measure = [], order._payload_bytes

    def note(ids: Iterable[int]) -> int:
        measured.append(True)
        return measure(ids)

    order._payload_bytes = note
    job = make_spec(payload=b"1" * (PAYLOAD_INLINE_BYTES_MAX + 1))
    for number in range(100):
        server.send(PutSchedule(make_schedule_spec(f"s{number}", Rule(at=HOUR), job=job)), T1)
    server.settle(T1)

    assert held_payload_bytes(server) == 100 * len(job.payload)
    assert len(measured) == 1
