"""Offers and reservations end after every failure, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from schedo.core.model import Job
from schedo.core.states import State
from schedo.errors import NoCapacity, NoReservation, SchedoError
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
    submitted,
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


def test_an_offer_ends_when_another_process_takes_its_workers_name() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, _ = await offer_invocation(server)

        await server.engine.sessions.work(make_poll(session="s2", running=frozenset()))

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        assert list(leftovers(server.engine)) == []

    live(test)


def test_an_offer_rejected_while_the_store_fails_ends_afterwards() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.change_queue("other")

        with contextlib.suppress(SchedoError):
            await server.engine.sessions.work(make_poll(reject=[(lease.key, "busy")]))
        await loop.pass_time(3)
        await works_again(server, loop)

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_an_offer_that_times_out_while_the_store_fails_ends_afterwards() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, _ = await offer_invocation(server)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.change_queue("other")

        await loop.pass_time(3)
        await works_again(server, loop)

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_reassigned_invocation_does_not_return_to_the_worker_that_rejected_it() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server, names="a b", wait_s=5.0)
        refuse = server.engine.sessions.work(make_poll(lease.worker, reject=[(lease.key, "busy")]))
        server.disk.commit_fails = 1.0  # the next worker's attempt is not written
        await refuse
        await loop.pass_time(3)
        await works_again(server, loop)

        [job] = await asyncio.wait_for(call, 60)
        assert job.is_final, "no worker has it"
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_rejected_offer_leaves_no_record_in_memory() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server)

        await server.engine.sessions.work(make_poll(reject=[(lease.key, "busy")]))

        with pytest.raises(NoCapacity):
            await call
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


def test_a_late_acceptance_is_revoked_without_a_list_of_running_attempts() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server)
        with pytest.raises(NoCapacity):
            await call

        response = await server.engine.sessions.work(make_poll(accept=[lease.key]))

        assert list(response.revoked) == [lease.key]

    live(test)


def test_a_cancelled_invocation_whose_offer_is_rejected_is_cancelled() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server)
        await server.engine.cancel(lease.key.job_id)

        await server.engine.sessions.work(make_poll(reject=[(lease.key, "busy")]))

        [job] = await call
        assert job.state is State.CANCELLED

    live(test)


def test_releasing_a_reservation_from_before_a_recovery_frees_no_new_slot() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        polls = [polling(server)]
        await server.engine.flush()
        old = await server.engine.reserve("work", "default", None, 1, 100.0)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.change_queue("other")
        await works_again(server, loop)
        polls.append(polling(server))
        await server.engine.flush()
        await server.engine.reserve("work", "default", None, 1, 100.0)

        with contextlib.suppress(NoReservation):
            await server.engine.release_reservation(old.id, old.nonce)
        await server.engine.flush()

        assert server.engine.sessions.get("a").running == 1

    live(test)


def test_a_released_reservation_gives_no_job_to_a_worker_that_does_not_poll() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, wait_s=1.0)
        await server.engine.flush()
        reservation = await server.engine.reserve("work", "default", None, 1, 100.0)
        await poll  # and the worker does not poll again

        await server.engine.release_reservation(reservation.id, reservation.nonce)
        job = await submitted(server)
        await server.engine.flush()

        assert (await server.engine.get(job.id)).state is State.QUEUED

    live(test)


def test_a_reservation_refuses_a_task_that_its_worker_does_not_run() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, slots=2)
        await loop.pass_time(0.01)
        reservation = await server.engine.reserve("work", "default", CPU, 1, 100.0)

        with pytest.raises(SchedoError):
            await server.engine.commit_reservation(
                reservation.id, reservation.nonce, spec("unknown"), 0.0
            )

        assert not poll.done(), "the worker was not asked"
        await disconnect(poll)

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


def test_an_invocation_ends_when_the_reassigned_attempt_is_not_written() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server, names="a b")
        refuse = server.engine.sessions.work(make_poll(lease.worker, reject=[(lease.key, "busy")]))
        await refuse
        server.disk.commit_fails = 1.0  # the next worker's attempt is not written
        await loop.pass_time(3)
        await works_again(server, loop)

        with contextlib.suppress(SchedoError):
            await asyncio.wait_for(call, 60)

        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_released_reservation_does_not_exceed_max_leases() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        first = polling(server, slots=10, max_leases=1)
        await loop.pass_time(0.01)
        reservation = await server.engine.reserve("work", "default", None, 1, 100.0)
        second = polling(server, slots=10, max_leases=1)  # it polls again, for one lease
        await first
        await loop.pass_time(0.01)

        await server.engine.release_reservation(reservation.id, reservation.nonce)
        await submitted(server, spec(), spec())

        assert len((await second).leases) == 1

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


def test_an_invocation_that_a_recovery_ended_is_not_returned_as_accepted() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await offer_invocation(server, names="a b")
        refuse = server.engine.sessions.work(make_poll(lease.worker, reject=[(lease.key, "busy")]))
        server.disk.commit_fails = 1.0
        await refuse
        await loop.pass_time(3)
        await works_again(server, loop)

        with contextlib.suppress(SchedoError):
            [job] = await asyncio.wait_for(call, 60)
            assert job.is_final, "no worker runs it"

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
