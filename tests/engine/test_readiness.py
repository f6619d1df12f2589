"""A server is not ready, with a reason, while jobs would not start in time."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from schedo.core.limits import HOUR, MINUTE, SECOND
from schedo.engine.health import LoopMonitor, ReadinessLog
from schedo.engine.metrics import Metrics
from schedo.errors import StoreError
from schedo.testing.clock import VirtualClock
from tests.core.builders import make_spec
from tests.core.server import Server
from tests.engine.world import T0, running


async def test_a_commit_that_takes_longer_than_5_s_makes_a_server_unready(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        submit = asyncio.create_task(world.submit(delay_us=MINUTE))
        await world.store.wait_held()

        world.clock.stall(5 * SECOND)
        assert world.engine.health().ready
        world.clock.stall(SECOND)
        assert world.engine.health().reasons == ["the store has not answered for 6.0 s"]

        world.store.release()
        await submit
        assert world.engine.health().ready


async def test_a_turn_that_comes_a_second_late_makes_a_server_unready_for_5_s(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)

        world.clock.stall(MINUTE + 3 * SECOND)
        assert world.engine.health().reasons == ["the timer loop was 3.0 s late just now"]

        world.clock.stall(5 * SECOND)
        assert world.engine.health().ready


async def test_a_turn_that_is_exactly_a_second_late_leaves_a_server_ready(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)

        world.clock.stall(MINUTE + SECOND)

        assert world.engine.health().ready


async def test_a_sweep_that_comes_a_second_late_makes_a_server_unready_for_5_more(
    path: Path,
) -> None:
    async with running(path) as world:  # its clock stands still
        sweep = world.engine._maintenance._sweep

        sweep(0.0, late_s=3.0)
        for _ in range(4):
            sweep(0.0, late_s=0.0)
        assert world.engine.health().reasons == ["the timer loop was 3.0 s late just now"]

        sweep(0.0, late_s=0.0)
        assert world.engine.health().ready


async def test_a_missing_turn_makes_a_server_unready(path: Path) -> None:
    async with running(path) as world:
        await world.submit(delay_us=MINUTE)
        world.clock.armed_at = None  # the alarm is lost

        world.clock.stall(MINUTE + 2 * SECOND)

        assert world.engine.health().reasons == ["the timer loop is 2.0 s overdue"]


async def test_a_clock_step_during_a_commit_leaves_a_server_ready(path: Path) -> None:
    async with running(path) as world:
        world.store.hold()
        submit = asyncio.create_task(world.submit(delay_us=MINUTE))
        await world.store.wait_held()

        world.clock.step(MINUTE)

        assert world.engine.health().ready
        world.store.release()
        await submit


def test_the_first_turn_after_a_failed_commit_has_no_lag() -> None:
    clock = VirtualClock(T0)
    monitor = LoopMonitor(clock, Metrics())
    monitor.expect_turn(T0 + SECOND, T0)

    monitor.failed(StoreError("it broke"), None)
    monitor.turn_began(T0 + MINUTE)

    assert (monitor.lag_us, monitor.not_ready_reasons(T0 + MINUTE)) == (0, [])


def test_the_log_reports_each_change_of_readiness_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "schedo.engine")
    readiness = ReadinessLog()

    for reasons in ([], ["one", "two"], ["two"], [], []):
        readiness.note(reasons)

    assert [record.getMessage() for record in caplog.records] == [
        "not ready: one; two",
        "ready again",
    ]


def overdue(due_at: int, *, count: int = 30) -> Server:
    """Return a scheduler that has begun to move a backlog of jobs that were due at the instant."""
    server = Server(capacity=4, slots=0)
    for _ in range(count):
        server.submit(make_spec(delay_us=due_at), 0)
    server.settle(0)
    now = due_at + MINUTE
    for _ in range(2):
        server.tick(now)
        server.round(now)
    server.tick(now)
    assert server.scheduler._jobs.backlog.through is not None
    return server


def test_a_backlog_from_before_the_start_leaves_a_server_ready() -> None:
    server = overdue(HOUR)
    monitor = LoopMonitor(VirtualClock(T0), Metrics())
    monitor.metrics.began_at = HOUR + 1

    assert monitor.not_ready_reasons(HOUR + MINUTE, server.scheduler) == []


def test_a_backlog_due_since_the_start_makes_a_server_unready_after_5_s() -> None:
    server = overdue(HOUR)
    monitor = LoopMonitor(VirtualClock(T0), Metrics())

    assert monitor.not_ready_reasons(HOUR + 4 * SECOND, server.scheduler) == []
    assert monitor.not_ready_reasons(HOUR + MINUTE, server.scheduler) == [
        "a backlog of jobs has been due for 60.0 s"
    ]


def test_a_due_job_that_only_the_server_delays_makes_it_unready_after_1_s() -> None:
    server = Server(slots=0)
    server.submit(make_spec(delay_us=HOUR), 0)
    server.settle(0)
    monitor = LoopMonitor(VirtualClock(T0), Metrics())

    assert monitor.not_ready_reasons(HOUR + SECOND, server.scheduler) == []
    assert monitor.not_ready_reasons(HOUR + 2 * SECOND, server.scheduler) == [
        "jobs that are due have waited for 2.0 s"
    ]
