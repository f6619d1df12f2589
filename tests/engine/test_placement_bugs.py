"""Work placed right now, in rare moments: offers and reservations end whatever happens to them."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from schedo.core.model import Job
from schedo.core.states import State
from schedo.errors import NoCapacity, NoReservation, SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.far import (
    CPU,
    Disk,
    Server,
    ask,
    bidding,
    done,
    hang_up,
    leftovers,
    live,
    polling,
    spec,
    submitted,
    works_again,
)


def test_an_invocation_whose_worker_is_lost_with_the_bid_is_answered() -> None:
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


def test_a_bid_of_a_worker_whose_name_is_taken_over_goes_on() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, _ = await bidding(server)

        await server.engine.sessions.work(ask(session="s2", running=frozenset()))

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_bid_that_is_refused_while_the_store_fails_is_passed_on_afterwards() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.change_queue("other")

        with contextlib.suppress(SchedoError):
            await server.engine.sessions.work(ask(reject=[(lease.key, "busy")]))
        await loop.pass_time(3)
        await works_again(server, loop)

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_bid_that_times_out_while_the_store_fails_is_passed_on_afterwards() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, _ = await bidding(server)
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


def test_an_invocation_that_was_passed_on_is_not_given_back_to_who_refused_it() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server, names="a b", wait_s=5.0)
        refuse = server.engine.sessions.work(ask(lease.worker, reject=[(lease.key, "busy")]))
        server.disk.commit_fails = 1.0  # the next worker's attempt is not written
        await refuse
        await loop.pass_time(3)
        await works_again(server, loop)

        [job] = await asyncio.wait_for(call, 60)
        assert job.is_final, "nobody has it"
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_refused_bid_leaves_nothing_behind() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server)

        await server.engine.sessions.work(ask(reject=[(lease.key, "busy")]))

        with pytest.raises(NoCapacity):
            await call
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_an_invocation_that_could_not_be_written_leaves_no_bid() -> None:
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


def test_a_bid_that_is_accepted_too_late_is_disowned_though_nothing_is_said_to_run() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server)
        with pytest.raises(NoCapacity):
            await call

        given = await server.engine.sessions.work(ask(accept=[lease.key]))

        assert list(given.revoked) == [lease.key]

    live(test)


def test_a_cancelled_invocation_whose_bid_is_refused_is_cancelled() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server)
        await server.engine.cancel(lease.key.job_id)

        await server.engine.sessions.work(ask(reject=[(lease.key, "busy")]))

        [job] = await call
        assert job.state is State.CANCELLED

    live(test)


def test_a_reservation_of_before_a_failure_takes_nothing_from_one_of_after_it() -> None:
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


def test_a_released_reservation_asks_for_nothing_in_the_name_of_a_worker_that_does_not() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, wait_s=1.0)
        await server.engine.flush()
        kept = await server.engine.reserve("work", "default", None, 1, 100.0)
        await poll  # and the worker does not ask again

        await server.engine.release_reservation(kept.id, kept.nonce)
        job = await submitted(server)
        await server.engine.flush()

        assert (await server.engine.get(job.id)).state is State.QUEUED

    live(test)


def test_what_is_run_on_a_reservation_is_what_its_worker_runs() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, slots=2)
        await loop.pass_time(0.01)
        kept = await server.engine.reserve("work", "default", CPU, 1, 100.0)

        with pytest.raises(SchedoError):
            await server.engine.commit_reservation(kept.id, kept.nonce, spec("unknown"), 0.0)

        assert not poll.done(), "the worker was not asked"
        await hang_up(poll)

    live(test)


def test_a_reservation_whose_asker_hangs_up_keeps_no_slot() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await loop.pass_time(0.01)
        reserving = asyncio.ensure_future(server.engine.reserve("work", "default", None, 1, 10.0))
        worker = server.engine._loop.workers.find("a")
        assert worker is not None
        hold = worker.running
        while not hold:
            await loop.pass_time(0)
        reserving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reserving

        await loop.pass_time(11)

        assert worker.running == {}
        await hang_up(poll)

    live(test)


def test_a_job_on_a_reservation_uses_what_was_reserved() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, slots=2)
        await loop.pass_time(0.01)
        kept = await server.engine.reserve("work", "default", CPU, 1, 100.0)

        call = asyncio.ensure_future(
            server.engine.commit_reservation(kept.id, kept.nonce, spec(), 5.0)
        )
        await poll

        assert server.engine.sessions.get("a").resources_used == {"cpu": 1_000}
        call.cancel()

    live(test)


def test_who_waits_for_a_taker_is_answered_when_the_next_takers_attempt_is_not_written() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server, names="a b")
        refuse = server.engine.sessions.work(ask(lease.worker, reject=[(lease.key, "busy")]))
        await refuse
        server.disk.commit_fails = 1.0  # the next worker's attempt is not written
        await loop.pass_time(3)
        await works_again(server, loop)

        with contextlib.suppress(SchedoError):
            await asyncio.wait_for(call, 60)

        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_released_reservation_gives_no_more_than_is_wanted() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        first = polling(server, slots=10, max_leases=1)
        await loop.pass_time(0.01)
        kept = await server.engine.reserve("work", "default", None, 1, 100.0)
        second = polling(server, slots=10, max_leases=1)  # it asks anew, for one
        await first
        await loop.pass_time(0.01)

        await server.engine.release_reservation(kept.id, kept.nonce)
        await submitted(server, spec(), spec())

        assert len((await second).leases) == 1

    live(test)


def test_all_or_nothing_says_no_capacity_although_one_of_them_ended_meanwhile() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        polls = [polling(server, "a"), polling(server, "b"), polling(server, "c")]
        await loop.pass_time(0.01)
        call = asyncio.ensure_future(server.engine.invoke(spec(once=True), 3, 0.0))
        leases = [(await poll).leases[0] for poll in polls]
        accepts = [
            server.engine.sessions.work(ask(lease.worker, accept=[lease.key]))
            for lease in leases[1:]
        ]
        await asyncio.gather(*accepts)
        refused = leases[0]
        await server.engine.sessions.work(ask(refused.worker, reject=[(refused.key, "busy")]))
        cancel = server.engine._placement._cancel

        async def cancel_late(job_id: int) -> Job:
            for lease in leases[1:]:
                await server.engine.sessions.work(ask(lease.worker, reports=[done(lease)]))
            return await cancel(job_id)

        server.engine._placement._cancel = cancel_late

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)

    live(test)


def test_nobody_is_said_to_have_taken_an_invocation_that_a_recovery_has_ended() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server, names="a b")
        refuse = server.engine.sessions.work(ask(lease.worker, reject=[(lease.key, "busy")]))
        server.disk.commit_fails = 1.0
        await refuse
        await loop.pass_time(3)
        await works_again(server, loop)

        with contextlib.suppress(SchedoError):
            [job] = await asyncio.wait_for(call, 60)
            assert job.is_final, "nobody runs it"

    live(test)


def test_a_late_result_of_who_refused_a_bid_does_not_take_it_for_the_next_worker() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server, names="a b")
        other = "b" if lease.worker == "a" else "a"
        await server.engine.sessions.work(ask(lease.worker, reject=[(lease.key, "busy")]))
        await loop.pass_time(0.1)

        await server.engine.sessions.work(ask(lease.worker, reports=[done(lease)]))
        await loop.pass_time(0.01)
        assert not call.done(), f"{other} has not said anything"

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)

    live(test)
