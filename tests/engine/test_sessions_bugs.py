"""Workers elsewhere in rare moments: what is neither lost nor done twice nor kept for ever."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from schedo.core.leases import Completed, Lease, Report
from schedo.core.lifecycle import State
from schedo.core.model import Job, JobSpec, Options, Queue
from schedo.core.routes import Route
from schedo.core.workers import WorkerOffer
from schedo.engine.answers import Accepted
from schedo.engine.asks import Ask, Given
from schedo.errors import NoCapacity, NoReservation, SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.far import Disk, Server, leftovers, live

CPU = Route(resources=(("cpu", 1_000),))


def offer(name: str = "a", *, slots: int = 1, tasks: str = "work", **fields: Any) -> WorkerOffer:
    return WorkerOffer(name, slots, frozenset(tasks.split()), resources={"cpu": 4_000}, **fields)


def ask(name: str = "a", *, slots: int = 1, tasks: str = "work", **fields: Any) -> Ask:
    given: dict[str, Any] = {"session": "s1", "offer": offer(name, slots=slots, tasks=tasks)}
    return Ask(name, **(given | {"want": 0} | fields))


def spec(task: str = "work", *, once: bool = False, route: Route | None = None) -> JobSpec:
    return JobSpec(task, b"{}", options=Options(at_most_once=once, route=route))


def done(lease: Lease) -> Report:
    return Report(lease.key, Completed(b"1"))


async def submitted(server: Server, *specs: JobSpec) -> Job:
    answers: Any = await server.engine.submit(specs or [spec()])
    assert isinstance(answers[0], Accepted)
    job: Job = answers[0].job
    return job


async def leased(server: Server, **fields: Any) -> Lease:
    """Let the worker have a job."""
    poll = polling(server, **fields)
    [lease] = (await poll).leases
    await server.engine.settled()
    return lease


def polling(server: Server, name: str = "a", **fields: Any) -> asyncio.Task[Given]:
    asked = ask(name, **{"want": None, "wait_s": 30.0, **fields})
    return asyncio.get_running_loop().create_task(server.engine.sessions.work(asked))


async def hang_up(poll: asyncio.Task[Given]) -> None:
    poll.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await poll


async def works_again(server: Server, loop: VirtualLoop) -> None:
    server.disk.commit_fails = 0.0
    while not server.engine.health().ready:
        await loop.pass_time(0.5)


async def bidding(
    server: Server, *, names: str = "a", wait_s: float = 0.0, once: bool = True
) -> tuple[asyncio.Task[list[Job]], Lease]:
    """Let an invocation be offered to a worker."""
    polls = [polling(server, name) for name in names.split()]
    await server.engine.settled()
    placing = server.engine.invoke(spec(once=once), 1, wait_s)
    call = asyncio.ensure_future(placing)
    ended, _ = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    [lease] = ended.pop().result().leases
    return call, lease


# At most once.


def test_a_job_that_runs_at_most_once_is_not_begun_again_when_server_and_worker_both_restart() -> (
    None
):
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        job = await submitted(server, spec(once=True))
        await leased(server)
        await server.die()
        server = await Server(loop, disk).start()

        given = await server.engine.sessions.work(ask(session="s2", want=None, running=frozenset()))

        await server.engine.settled()
        assert given.leases == []
        assert (await server.engine.get(job.id)).state is State.FAILED

    live(test)


def test_a_worker_without_sessions_that_restarts_has_lost_what_ran_at_most_once() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        job = await submitted(server, spec(once=True))
        await leased(server, session="")

        given = await server.engine.sessions.work(ask(session="", want=None, running=frozenset()))

        await server.engine.settled()
        assert given.leases == []
        assert (await server.engine.get(job.id)).state is State.FAILED

    live(test)


def test_a_lease_that_no_answer_held_is_handed_back_when_its_worker_is_lost() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await server.engine.settled()
        job = await submitted(server, spec(once=True))
        server.engine.sessions.wake()  # it is answered before the start is durable
        assert (await poll).leases == []
        await server.engine.settled()

        await loop.pass_time(60)

        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)

    live(test)


def test_two_failures_in_a_row_do_not_make_a_worker_hold_what_it_never_got() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        poll = polling(server, silence_s=3600.0, wait_s=60.0)
        await server.engine.settled()
        await submitted(server, spec(once=True))
        commit = disk.memory.commit

        async def written_but_failed(changes: Any) -> None:
            await commit(changes)
            disk.commit_fails = 1.0

        disk.memory.commit = written_but_failed  # type: ignore[method-assign]
        await loop.pass_time(5)
        disk.memory.commit = commit  # type: ignore[method-assign]
        await works_again(server, loop)
        await hang_up(poll)

        session = server.engine.sessions._sessions["a"]
        assert [held.given_at for held in session.held.values()] in ([], [None])

    live(test)


# The worker is there, the server is slow.


def test_a_worker_whose_results_wait_for_a_slow_disk_is_not_lost() -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        server = await Server(loop, disk).start()
        await submitted(server, spec(), spec())
        first, second = (await polling(server, slots=2)).leases
        await server.engine.settled()
        disk.delay_s = 12.0

        running = frozenset({second.key})
        telling = server.engine.sessions.work(
            ask(slots=2, reports=[done(first)], running=running, silence_s=5.0)
        )
        await telling

        given = await server.engine.sessions.work(ask(slots=2, running=running, silence_s=5.0))
        assert given.disowned == []

    live(test)


# Bids.


def test_an_invocation_whose_worker_is_lost_with_the_bid_is_answered() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, silence_s=5.0, wait_s=0.1)
        await server.engine.settled()
        server.disk.delay_s = 0.2  # the poll is answered before the start is durable
        call = asyncio.ensure_future(server.engine.invoke(spec(once=True), 1, 0.0))
        assert (await poll).leases == []

        with pytest.raises((NoCapacity, SchedoError)):
            await asyncio.wait_for(call, 60)

        await server.engine.settled()
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
            await server.engine.set_queue(Queue("other"))

        with contextlib.suppress(SchedoError):
            await server.engine.sessions.work(ask(reject=[(lease.key, "busy")]))
        await loop.pass_time(3)
        await works_again(server, loop)

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        await server.engine.settled()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_bid_that_times_out_while_the_store_fails_is_passed_on_afterwards() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, _ = await bidding(server)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.set_queue(Queue("other"))

        await loop.pass_time(3)
        await works_again(server, loop)

        with pytest.raises(NoCapacity):
            await asyncio.wait_for(call, 60)
        await server.engine.settled()
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
        await server.engine.settled()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_refused_bid_leaves_nothing_behind() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        call, lease = await bidding(server)

        await server.engine.sessions.work(ask(reject=[(lease.key, "busy")]))

        with pytest.raises(NoCapacity):
            await call
        await server.engine.settled()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_an_invocation_that_could_not_be_written_leaves_no_bid() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await server.engine.settled()
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

        assert list(given.disowned) == [lease.key]

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


# Reservations.


def test_a_reservation_of_before_a_failure_takes_nothing_from_one_of_after_it() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        polls = [polling(server)]
        await server.engine.settled()
        old = await server.engine.reserve("work", "default", None, 1, 100.0)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.set_queue(Queue("other"))
        await works_again(server, loop)
        polls.append(polling(server))
        await server.engine.settled()
        await server.engine.reserve("work", "default", None, 1, 100.0)

        with contextlib.suppress(NoReservation):
            await server.engine.release_reservation(old.id, old.nonce)
        await server.engine.settled()

        assert server.engine.sessions.get("a").running == 1

    live(test)


def test_a_released_reservation_asks_for_nothing_in_the_name_of_a_worker_that_does_not() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, wait_s=1.0)
        await server.engine.settled()
        kept = await server.engine.reserve("work", "default", None, 1, 100.0)
        await poll  # and the worker does not ask again

        await server.engine.release_reservation(kept.id, kept.nonce)
        job = await submitted(server)
        await server.engine.settled()

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


# Asking.


def test_a_worker_that_hangs_up_before_its_turn_asks_for_nothing() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(ask())
        await server.engine.settled()
        request = server.engine.sessions.work(ask(want=None, wait_s=30.0))
        request.send(None).cancel()
        with contextlib.suppress(asyncio.CancelledError):
            request.throw(asyncio.CancelledError())

        job = await submitted(server)
        await server.engine.settled()

        assert (await server.engine.get(job.id)).state is State.QUEUED

    live(test)


def test_a_draining_worker_gets_nothing_through_a_request_that_still_waits() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server, slots=2)
        await submitted(server)
        [lease] = (await poll).leases
        poll = polling(server, slots=2, running=frozenset({lease.key}))
        await server.engine.settled()
        await server.engine.sessions.work(
            ask(slots=2, is_draining=True, running=frozenset({lease.key}))
        )

        job = await submitted(server)
        await loop.pass_time(1)

        assert (await server.engine.get(job.id)).state is State.QUEUED
        await hang_up(poll)

    live(test)


def test_a_draining_worker_hands_back_at_once_what_was_on_its_way() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        job = await submitted(server)
        await leased(server)

        await server.engine.sessions.work(ask(is_draining=True, running=frozenset()))

        await server.engine.settled()
        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)
        assert server.engine.sessions.get("a").state == "away"

    live(test)


# Cordon.


def test_a_cordon_outlives_a_failure_of_the_store() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(ask())
        await server.engine.settled()
        server.engine.sessions.cordon("a", True)
        server.disk.commit_fails = 1.0
        with contextlib.suppress(SchedoError):
            await server.engine.set_queue(Queue("other"))
        await works_again(server, loop)

        assert server.engine.sessions.get("a").state == "cordoned"

    live(test)


def test_a_cordon_outlives_an_absence_of_the_worker() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(ask())
        await server.engine.settled()
        server.engine.sessions.cordon("a", True)
        await loop.pass_time(60)
        assert server.engine.sessions.get("a").state == "away"

        await server.engine.sessions.work(ask())
        await server.engine.settled()

        assert server.engine.sessions.get("a").state == "cordoned"

    live(test)


def test_a_worker_that_was_sent_away_and_is_uncordoned_may_stay() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(ask())
        await server.engine.settled()
        server.engine.sessions.drain("a")

        server.engine.sessions.cordon("a", False)

        assert not (await server.engine.sessions.work(ask())).drain

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


def test_a_lease_that_waits_for_its_commit_is_handed_back_when_its_worker_leaves() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await loop.pass_time(0.01)
        job = await submitted(server, spec(once=True))
        while (await server.engine.get(job.id)).state is not State.RUNNING:
            await loop.pass_time(0)

        server.engine.detach("a", "it left")
        await server.engine.settled()

        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)
        await hang_up(poll)

    live(test)


# Seen later.


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

        await server.engine.settled()
        assert list(leftovers(server.engine)) == []

    live(test)


def test_the_next_process_of_a_drained_name_may_work() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(ask())
        await server.engine.settled()
        server.engine.sessions.drain("a")
        await server.engine.sessions.work(ask(is_draining=True, running=frozenset()))
        await server.engine.settled()

        await server.engine.sessions.work(ask(session="s2"))
        await server.engine.settled()

        assert server.engine.sessions.get("a").state == "active"

    live(test)


def test_a_released_reservation_gives_no_more_than_is_wanted() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        first = polling(server, slots=10, want=1)
        await loop.pass_time(0.01)
        kept = await server.engine.reserve("work", "default", None, 1, 100.0)
        second = polling(server, slots=10, want=1)  # it asks anew, for one
        await first
        await loop.pass_time(0.01)

        await server.engine.release_reservation(kept.id, kept.nonce)
        await submitted(server, spec(), spec())

        assert len((await second).leases) == 1

    live(test)


def test_a_draining_worker_hands_back_what_no_answer_held() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = polling(server)
        await loop.pass_time(0.01)
        job = await submitted(server, spec(once=True))
        server.engine.sessions.wake()  # it is answered before the start is durable
        assert (await poll).leases == []
        await loop.pass_time(1)
        for _ in range(2):
            await server.engine.sessions.work(ask(is_draining=True, running=frozenset()))
            await loop.pass_time(1)

        found = await server.engine.get(job.id)
        assert (found.state, found.losses) == (State.QUEUED, 0)
        assert server.engine.sessions.get("a").state == "away"

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
        cancel = server.engine._placing._cancel

        async def cancel_late(job_id: int) -> Job:
            for lease in leases[1:]:
                await server.engine.sessions.work(ask(lease.worker, reports=[done(lease)]))
            return await cancel(job_id)

        server.engine._placing._cancel = cancel_late

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
