"""Offers and reservations whose store, worker or client fails: they end, and hold no slot."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from schedo.core.model import Job
from schedo.errors import NoCapacity, SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import (
    CPU,
    Disk,
    Server,
    disconnect,
    done,
    leftovers,
    live,
    make_poll,
    offer_invocation,
    polling,
    spec,
    works_again,
)


def test_an_invocation_ends_when_its_worker_is_lost_with_the_offer() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, session_timeout_s=5.0, wait_s=0.1)
        await server.engine.flush()
        server.disk.delay_s = 0.2  # the poll is answered before the start is durable
        call = asyncio.ensure_future(server.engine.invoke(spec(once=True), 1, 0.0))
        assert (await poll).leases == []

        with pytest.raises((NoCapacity, SchedoError)):
            await asyncio.wait_for(call, 60)

        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


@pytest.mark.parametrize("is_rejected", [True, False], ids=["rejected", "timed out"])
def test_an_offer_that_ends_while_the_store_fails_ends_its_invocation_afterwards(
    is_rejected: bool,
) -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.change_queue("other")

        if is_rejected:
            with contextlib.suppress(SchedoError):
                await server.engine.sessions.work(make_poll(reject=[(lease.key, "busy")]))
        await loop.pass_time(3)
        await works_again(server, loop)

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


@pytest.mark.parametrize("wait_s", [0.0, 5.0])
@pytest.mark.parametrize("fails_before_the_reply", [True, False])
def test_an_invocation_ends_if_the_attempt_on_its_next_worker_is_not_written(
    wait_s: float, fails_before_the_reply: bool
) -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server, names="a b", wait_s=wait_s)
        reject = server.engine.sessions.work(make_poll(lease.worker, reject=[(lease.key, "busy")]))
        if fails_before_the_reply:
            server.disk.commit_fails = 1.0
        await reject
        server.disk.commit_fails = 1.0
        await loop.pass_time(3)
        await works_again(server, loop)

        with contextlib.suppress(SchedoError):
            [job] = await asyncio.wait_for(call, 60)
            assert job.is_final, "no worker runs it"
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_an_invocation_whose_commit_failed_leaves_no_offer() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await server.engine.flush()
        server.disk.commit_fails = 1.0

        with pytest.raises(SchedoError):
            await server.engine.invoke(spec(once=True), 1, 0.0)
        await works_again(server, loop)
        await poll

        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_reservation_request_whose_client_disconnects_holds_no_slot() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await loop.pass_time(0.01)
        reserving = asyncio.ensure_future(server.engine.reserve("work", "default", None, 1, 10.0))
        worker = server.engine._loop.scheduler._workers.find("a")
        assert worker is not None
        hold = worker.running
        while not hold:
            await loop.pass_time(0)
        reserving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reserving

        await loop.pass_time(11)

        assert worker.running == {}
        await disconnect(poll)

    live(test)


def test_a_job_on_a_reservation_uses_the_reserved_resources() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, slots=2)
        await loop.pass_time(0.01)
        reservation = await server.engine.reserve("work", "default", CPU, 1, 100.0)

        call = asyncio.ensure_future(
            server.engine.commit_reservation(reservation.id, reservation.nonce, spec(), 5.0)
        )
        await poll

        assert server.engine.sessions.get("a").resources_used == {"cpu": 1_000}
        call.cancel()

    live(test)


def test_a_gang_reports_no_capacity_even_if_one_of_its_jobs_has_ended() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        polls = [polling(server, "a"), polling(server, "b"), polling(server, "c")]
        await loop.pass_time(0.01)
        call = asyncio.ensure_future(server.engine.invoke(spec(once=True), 3, 0.0))
        leases = [(await poll).leases[0] for poll in polls]
        accepts = [
            server.engine.sessions.work(make_poll(lease.worker, accept=[lease.key]))
            for lease in leases[1:]
        ]
        await asyncio.gather(*accepts)
        refused = leases[0]
        await server.engine.sessions.work(make_poll(refused.worker, reject=[(refused.key, "busy")]))
        cancel = server.engine._invocations._cancel

        async def cancel_late(job_id: int) -> Job:
            for lease in leases[1:]:
                await server.engine.sessions.work(make_poll(lease.worker, reports=[done(lease)]))
            return await cancel(job_id)

        server.engine._invocations._cancel = cancel_late

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)

    live(test)


def test_a_late_result_of_a_rejecting_worker_does_not_accept_for_the_next_one() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server, names="a b")
        other = "b" if lease.worker == "a" else "a"
        await server.engine.sessions.work(make_poll(lease.worker, reject=[(lease.key, "busy")]))
        await loop.pass_time(0.1)

        await server.engine.sessions.work(make_poll(lease.worker, reports=[done(lease)]))
        await loop.pass_time(0.01)
        assert not call.done(), f"{other} has not said anything"

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)

    live(test)
