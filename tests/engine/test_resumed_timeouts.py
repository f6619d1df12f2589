"""The timeouts of attempts that a remote worker runs on while its server is replaced."""

from __future__ import annotations

import pytest

from schedo.core.leases import AttemptResult, Lease, Stopped, StopReason
from schedo.core.model import JobSpec, Options
from schedo.core.states import State
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import Disk, Server, done, live, make_poll, submitted

SECOND = 1_000_000
TIMED = JobSpec("work", b"{}", options=Options(timeout_us=10 * SECOND))


async def leased(server: Server) -> Lease:
    """Let the remote worker get a job that may run for 10 s; its start is not yet durable."""
    await submitted(server, TIMED)
    [lease] = (await server.engine.sessions.work(make_poll(max_leases=1))).leases
    return lease


async def replaced(loop: VirtualLoop, server: Server) -> Server:
    """Kill the server and start the next one on its disk."""
    await server.die()
    server.disk.delay_s = 0.001
    return await Server(loop, server.disk).start()


async def stops(server: Server, lease: Lease) -> list[StopReason]:
    """Return the reasons of the stop requests that the worker gets with its next poll."""
    response = await server.engine.sessions.work(make_poll(running=frozenset({lease.key})))
    assert response.revoked == []
    return [stop.reason for stop in response.stops]


def test_a_remote_attempt_is_not_stopped_for_a_timeout_before_its_start_is_durable() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await submitted(server, TIMED)
        server.disk.delay_s = 60.0
        [lease] = (await server.engine.sessions.work(make_poll(max_leases=1))).leases

        await loop.pass_time(11)
        assert await stops(server, lease) == []
        server = await replaced(loop, server)
        assert await stops(server, lease) == []
        await server.engine.sessions.work(make_poll(reports=[done(lease)]))

        job = (await server.disk.jobs())[lease.key.job_id]
        assert (job.state, job.attempt) == (State.COMPLETED, 1)
        await server.engine.stop()

    live(test)


def test_a_stopped_attempt_counts_as_timed_out_though_its_server_was_killed() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        lease = await leased(server)
        await server.engine.flush()
        await loop.pass_time(11)
        assert await stops(server, lease) == [StopReason.TIMEOUT]

        server = await replaced(loop, server)
        ended = make_poll(reports=[AttemptResult(lease.key, Stopped())])
        assert (await server.engine.sessions.work(ended)).refused == []

        job = (await server.disk.jobs())[lease.key.job_id]
        assert (job.state, job.attempt, job.failures) == (State.RETRYING, 1, 1)
        assert job.failure is not None
        assert job.failure.type == "timeout"
        await server.engine.stop()

    live(test)


def test_a_resumed_attempt_is_stopped_at_its_deadline() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        lease = await leased(server)
        await server.engine.flush()
        await loop.pass_time(6)

        server = await replaced(loop, server)
        assert await stops(server, lease) == []
        await loop.pass_time(5)
        assert await stops(server, lease) == [StopReason.TIMEOUT]
        await server.engine.stop()

    live(test)


@pytest.mark.parametrize("step_s", [3_600, -3_600], ids=["forward", "back"])
def test_a_clock_that_was_set_does_not_shorten_the_timeout_of_a_resumed_attempt(
    step_s: int,
) -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        lease = await leased(server)
        await server.engine.flush()
        await server.die()
        after = Server(loop, server.disk)
        after.clock._wall.offset_us += step_s * SECOND
        after.clock.base_us += step_s * SECOND
        await after.engine.start()

        await loop.pass_time(8)
        assert await stops(after, lease) == []
        await loop.pass_time(3)
        assert await stops(after, lease) == [StopReason.TIMEOUT]
        await after.engine.sessions.work(make_poll(reports=[done(lease)]))
        again = await leased(after)
        await after.engine.flush()
        last = Server(loop, server.disk)  # the clock was set before this attempt began
        last.clock._wall.offset_us = after.clock._wall.offset_us
        last.clock.base_us = after.clock.base_us
        await loop.pass_time(6)
        await after.die()
        await last.engine.start()
        await loop.pass_time(5)
        assert await stops(last, again) == [StopReason.TIMEOUT]
        await last.engine.stop()

    live(test)
