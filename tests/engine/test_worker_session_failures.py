"""Remote workers under failures: no attempt is lost, repeated or held forever."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from schedo.core.commands import CompletePolls
from schedo.core.model import JobSpec
from schedo.core.states import State
from schedo.errors import SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import (
    Disk,
    Server,
    disconnect,
    done,
    leased,
    live,
    make_poll,
    polling,
    spec,
    submitted,
    works_again,
)
from tests.store.steps import LARGE


def test_an_at_most_once_job_is_not_repeated_when_server_and_worker_restart() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        job = await submitted(server, spec(once=True))
        await leased(server)
        await server.die()
        server = await Server(loop, disk).start()

        response = await server.engine.sessions.work(
            make_poll(session="s2", max_leases=None, running=frozenset())
        )

        await server.engine.flush()
        assert response.leases == []
        assert (await server.engine.get(job.id)).state is State.FAILED

    live(test)


def test_a_restarted_worker_that_does_not_send_a_session_loses_its_at_most_once_job() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        job = await submitted(server, spec(once=True))
        await leased(server, session="")

        response = await server.engine.sessions.work(
            make_poll(session="", max_leases=None, running=frozenset())
        )

        await server.engine.flush()
        assert response.leases == []
        assert (await server.engine.get(job.id)).state is State.FAILED

    live(test)


def test_an_unsent_lease_is_released_when_its_worker_is_lost() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await server.engine.flush()
        job = await submitted(server, spec(once=True))
        server.engine._loop.enqueue(CompletePolls())  # it is answered before the start is durable
        assert (await poll).leases == []
        await server.engine.flush()

        await loop.pass_time(60)

        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)

    live(test)


def test_after_two_failures_of_the_store_an_unsent_lease_does_not_count_as_held() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        poll = polling(server, session_timeout_s=3600.0, wait_s=60.0)
        await server.engine.flush()
        await submitted(server, spec(once=True))
        commit = disk.memory.commit

        async def written_but_failed(changes: Any) -> None:
            await commit(changes)
            disk.commit_fails = 1.0

        disk.memory.commit = written_but_failed  # type: ignore[method-assign]
        await loop.pass_time(5)
        disk.memory.commit = commit  # type: ignore[method-assign]
        await works_again(server, loop)
        await disconnect(poll)

        session = server.engine._loop.scheduler._session_table.by_name["a"]
        assert [held.sent_at for held in session.held.values()] in ([], [None])

    live(test)


def test_a_lease_on_its_way_outlives_a_recovery_and_may_come_after_newer_ones() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        polls, is_loaded = server.engine._loop.polls, asyncio.Event()
        load = polls._load_payload

        async def load_late(job_id: int) -> bytes:
            await is_loaded.wait()
            return await load(job_id)

        polls._load_payload = load_late
        waiting = polling(server)
        await server.engine.flush()
        await submitted(server, JobSpec("work", LARGE))
        server.disk.commit_fails = 1.0
        await loop.pass_time(0.1)
        assert not server.engine.health().ready
        await works_again(server, loop)

        await submitted(server)
        [newer] = (await server.engine.sessions.work(make_poll("b", max_leases=1))).leases
        is_loaded.set()
        [older] = (await waiting).leases

        assert (older.key.attempt, older.payload) == (1, LARGE)
        assert older.key.epoch < newer.key.epoch
        assert (await server.engine.sessions.work(make_poll(reports=[done(older)]))).refused == []
        assert (await server.engine.get(older.key.job_id)).state is State.COMPLETED

    live(test)


def test_a_stalled_server_does_not_lose_a_worker() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await submitted(server)
        lease = await leased(server, session_timeout_s=5.0)

        loop.stall(9.0)
        await loop.pass_time(0.5)  # timers come first, then the data in the sockets
        response = await server.engine.sessions.work(make_poll(running=frozenset({lease.key})))

        assert response.revoked == []
        await loop.pass_time(8)
        assert (await server.engine.get(lease.key.job_id)).losses == 0

    live(test)


@pytest.mark.parametrize("seconds", [5.01, 5.2, 5.9, 60.0])
def test_a_request_sent_during_a_stall_is_read_before_the_timeout(seconds: float) -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await submitted(server)
        lease = await leased(server, session_timeout_s=5.0)

        loop.stall(seconds)
        await loop.pass_time(0.01)  # timers come first, then the data in the sockets
        response = await server.engine.sessions.work(make_poll(running=frozenset({lease.key})))

        assert response.revoked == []
        assert (await server.engine.get(lease.key.job_id)).losses == 0

    live(test)


def test_a_worker_has_the_rest_of_its_timeout_after_a_stall() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await submitted(server)
        lease = await leased(server, session_timeout_s=5.0)

        await loop.pass_time(1)
        loop.stall(60)
        await loop.pass_time(3)
        response = await server.engine.sessions.work(make_poll(running=frozenset({lease.key})))

        assert response.revoked == []

    live(test)


def test_a_worker_that_is_silent_after_a_stall_is_lost() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        job = await submitted(server)
        await leased(server, session_timeout_s=5.0)

        loop.stall(9.0)
        await loop.pass_time(6)
        await server.engine.flush()

        assert (await server.engine.get(job.id)).losses == 1

    live(test)


def test_a_worker_whose_results_wait_for_a_slow_disk_is_not_lost() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        await submitted(server, spec(), spec())
        first, second = (await polling(server, slots=2)).leases
        await server.engine.flush()
        disk.delay_s = 12.0

        running = frozenset({second.key})
        telling = server.engine.sessions.work(
            make_poll(slots=2, reports=[done(first)], running=running, session_timeout_s=5.0)
        )
        await telling

        response = await server.engine.sessions.work(
            make_poll(slots=2, running=running, session_timeout_s=5.0)
        )
        assert response.revoked == []

    live(test)


def test_a_worker_that_disconnects_before_the_turn_gets_no_lease() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(make_poll())
        await server.engine.flush()
        request = server.engine.sessions.work(make_poll(max_leases=None, wait_s=30.0))
        request.send(None).cancel()
        with contextlib.suppress(asyncio.CancelledError):
            request.throw(asyncio.CancelledError())

        job = await submitted(server)
        await server.engine.flush()

        assert (await server.engine.get(job.id)).state is State.QUEUED

    live(test)


def test_a_draining_worker_gets_no_lease_through_its_open_poll() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, slots=2)
        await submitted(server)
        [lease] = (await poll).leases
        poll = polling(server, slots=2, running=frozenset({lease.key}))
        await server.engine.flush()
        await server.engine.sessions.work(
            make_poll(slots=2, is_draining=True, running=frozenset({lease.key}))
        )

        job = await submitted(server)
        await loop.pass_time(1)

        assert (await server.engine.get(job.id)).state is State.QUEUED
        await disconnect(poll)

    live(test)


def test_a_lease_on_its_way_to_a_draining_worker_is_released_at_once() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        job = await submitted(server)
        await leased(server)

        await server.engine.sessions.work(make_poll(is_draining=True, running=frozenset()))

        await server.engine.flush()
        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)
        assert server.engine.sessions.get("a").state == "disconnected"

    live(test)


def test_a_cordon_survives_a_failure_of_the_store() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(make_poll())
        await server.engine.flush()
        await server.engine.sessions.cordon("a", True)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.change_queue("other")
        await works_again(server, loop)

        assert server.engine.sessions.get("a").state == "cordoned"

    live(test)


def test_a_cordon_survives_a_disconnect_of_the_worker() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(make_poll())
        await server.engine.flush()
        await server.engine.sessions.cordon("a", True)
        await loop.pass_time(60)
        assert server.engine.sessions.get("a").state == "disconnected"

        await server.engine.sessions.work(make_poll())
        await server.engine.flush()

        assert server.engine.sessions.get("a").state == "cordoned"

    live(test)


def test_uncordoning_a_draining_worker_ends_the_drain() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(make_poll())
        await server.engine.flush()
        await server.engine.sessions.drain("a")

        await server.engine.sessions.cordon("a", False)

        assert not (await server.engine.sessions.work(make_poll())).drain

    live(test)


def test_a_lease_that_waits_for_its_commit_is_released_when_its_worker_leaves() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await loop.pass_time(0.01)
        job = await submitted(server, spec(once=True))
        while (await server.engine.get(job.id)).state is not State.RUNNING:
            await loop.pass_time(0)

        server.engine.detach("a", "it left")
        await server.engine.flush()

        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)
        await disconnect(poll)

    live(test)


def test_the_next_process_under_the_name_of_a_drained_worker_gets_jobs() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(make_poll())
        await server.engine.flush()
        await server.engine.sessions.drain("a")
        await server.engine.sessions.work(make_poll(is_draining=True, running=frozenset()))
        await server.engine.flush()

        await server.engine.sessions.work(make_poll(session="s2"))
        await server.engine.flush()

        assert server.engine.sessions.get("a").state == "active"

    live(test)


def test_a_draining_worker_releases_its_unsent_leases() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await loop.pass_time(0.01)
        job = await submitted(server, spec(once=True))
        server.engine._loop.enqueue(CompletePolls())  # it is answered before the start is durable
        assert (await poll).leases == []
        await loop.pass_time(1)
        for _ in range(2):
            await server.engine.sessions.work(make_poll(is_draining=True, running=frozenset()))
            await loop.pass_time(1)

        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)
        assert server.engine.sessions.get("a").state == "disconnected"

    live(test)
