"""A server that is killed before it has stored a start, and the next one on the same disk."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.ids import render_id
from schedo.core.leases import AttemptResult, Lease, Stopped, StopReason
from schedo.core.limits import MINUTE, SECOND
from schedo.core.states import State
from schedo.core.worker_session import RESTART_TIMEOUT_US
from schedo.errors import SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import Disk, Server, done, leftovers, live, make_poll, submitted


async def killed_before_a_start_is_stored(
    loop: VirtualLoop, disk: Disk, ahead_us: int = 0
) -> tuple[Lease, Server]:
    """Return the lease that a worker holds, and the next server, which does not know it.

    ahead_us: of the clock of that server when it starts, which it finds out then.
    """
    server = await Server(loop, disk).start()
    await submitted(server)
    disk.delay_s = 1.0
    response = await server.engine.sessions.work(make_poll(max_leases=1))
    [lease] = response.leases
    await server.die()
    disk.delay_s = 0.001
    assert (await disk.jobs())[lease.key.job_id].state is State.QUEUED
    following = Server(loop, disk)
    following.clock.base_us += ahead_us
    return lease, await following.start()


def test_an_attempt_goes_on_under_the_next_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "schedo.engine")

    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        lease, server = await killed_before_a_start_is_stored(loop, disk)

        running = make_poll(running=frozenset({lease.key}))
        assert (await server.engine.sessions.work(running)).revoked == []
        await server.engine.flush()  # the log comes behind the response
        job_id = render_id(lease.key.job_id)
        assert f"worker a goes on with attempt 1 of job {job_id}" in caplog.text
        response = await server.engine.sessions.work(make_poll(reports=[done(lease)]))

        assert response.refused == []
        job = (await disk.jobs())[lease.key.job_id]
        assert (job.state, job.attempt, job.epoch) == (State.COMPLETED, 1, lease.key.epoch)
        assert list(leftovers(server.engine)) == []
        await server.engine.stop()

    live(test)


@pytest.mark.parametrize("ahead_us", [MINUTE, -MINUTE])
def test_an_attempt_goes_on_under_a_server_whose_machine_has_another_clock_than_its_database(
    ahead_us: int,
) -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        lease, server = await killed_before_a_start_is_stored(loop, disk, ahead_us)
        running = make_poll(running=frozenset({lease.key}))

        assert (await server.engine.sessions.work(running)).revoked == []

        await loop.pass_time(RESTART_TIMEOUT_US / SECOND)
        previous = server.engine._loop.scheduler._session_table.previous
        assert previous is not None
        assert server.clock.now() - previous.ended_at >= RESTART_TIMEOUT_US
        await server.engine.stop()

    live(test)


def test_a_remote_attempt_is_not_stopped_for_a_cancel_that_is_lost_with_the_server() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        await submitted(server)
        [lease] = (await server.engine.sessions.work(make_poll(max_leases=1))).leases
        await server.engine.flush()
        disk.delay_s = 1.0

        cancelling = asyncio.create_task(server.engine.cancel(lease.key.job_id))
        await loop.pass_time(0.5)
        running = make_poll(running=frozenset({lease.key}))
        assert (await server.engine.sessions.work(running)).stops == []
        await server.die()
        cancelling.cancel()
        disk.delay_s = 0.001
        server = await Server(loop, disk).start()
        response = await server.engine.sessions.work(running)
        assert (response.stops, response.revoked) == ([], [])
        await server.engine.sessions.work(make_poll(reports=[done(lease)]))

        job = (await disk.jobs())[lease.key.job_id]
        assert (job.state, job.attempt) == (State.COMPLETED, 1)
        await server.engine.stop()

    live(test)


def test_a_remote_attempt_is_stopped_once_its_cancel_is_durable() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        await submitted(server)
        [lease] = (await server.engine.sessions.work(make_poll(max_leases=1))).leases

        await server.engine.cancel(lease.key.job_id)
        running = make_poll(running=frozenset({lease.key}))
        [stop] = (await server.engine.sessions.work(running)).stops

        assert (stop.key, stop.reason) == (lease.key, StopReason.CANCEL)
        await server.engine.sessions.work(make_poll(reports=[AttemptResult(lease.key, Stopped())]))
        assert (await disk.jobs())[lease.key.job_id].state is State.CANCELLED
        await server.engine.stop()

    live(test)


def test_its_result_survives_a_failed_commit_of_the_next_server() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        lease, server = await killed_before_a_start_is_stored(loop, disk)

        disk.commit_fails = 1.0
        with pytest.raises(SchedoError, match="flickered"):
            await server.engine.sessions.work(make_poll(reports=[done(lease)]))
        disk.commit_fails = 0.0
        await loop.pass_time(5)

        assert (await disk.jobs())[lease.key.job_id].state is State.COMPLETED
        assert list(leftovers(server.engine)) == []
        await server.engine.stop()

    live(test)
