"""All jobs of a gang start, or none, whatever the workers reply."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.leases import AttemptResult, Completed, Lease, StopRequest
from schedo.core.model import Job
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import NoCapacity, SchedoError
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import (
    Disk,
    Server,
    disconnect,
    leftovers,
    live,
    make_poll,
    polling,
    spec,
    submitted,
    works_again,
)
from tests.store.steps import all_jobs


class Local:
    """A worker in the server's process. It cannot reject a lease and begins each at once."""

    def __init__(self, server: Server, slots: int = 1) -> None:
        self.server = server
        self.begun: list[Lease] = []
        server.engine.attach(WorkerSpec("local", slots, frozenset({"work"})), self)

    def start(self, lease: Lease) -> None:
        self.begun.append(lease)

    def stop(self, stop: StopRequest) -> None:
        self.server.engine.report(AttemptResult(stop.key, Completed()))

    def end(self) -> None:
        for lease in self.begun:
            self.server.engine.report(AttemptResult(lease.key, Completed(b"1")))


def invoke(server: Server, count: int, wait_s: float = 5.0) -> asyncio.Task[list[Job]]:
    call = server.engine.invoke(spec(once=True), count, wait_s)
    return asyncio.get_running_loop().create_task(call)


async def half_offered(
    server: Server, local_slots: int = 1
) -> tuple[Local, asyncio.Task[list[Job]], Lease]:
    """Invoke jobs for a worker that starts them at once, and one that is offered to worker b."""
    local = Local(server, local_slots)
    poll = polling(server, "b")
    await server.engine.flush()
    call = invoke(server, local_slots + 1)
    [offer] = (await poll).leases
    return local, call, offer


async def refused(server: Server, call: asyncio.Task[list[Job]]) -> None:
    """Check that the invocation is refused and leaves no record in memory."""
    with pytest.raises(NoCapacity):
        await asyncio.wait_for(call, 60)
    await server.engine.flush()
    found = await all_jobs(server.engine.store)
    assert {job.state for job in found} == {State.FAILED}
    assert list(leftovers(server.engine)) == []


def test_a_worker_without_offers_gets_its_lease_after_the_others_accepted() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        plain, poll = polling(server, "a", supports_offers=False), polling(server, "b")
        await server.engine.flush()
        call = invoke(server, 2)
        [offer] = (await poll).leases
        await loop.pass_time(0.1)
        assert not plain.done()

        response = await server.engine.sessions.work(make_poll("b", accept=[offer.key]))

        assert response.revoked == []
        [lease] = (await plain).leases
        for name, key in (("a", lease.key), ("b", offer.key)):
            await server.engine.sessions.work(
                make_poll(name, reports=[AttemptResult(key, Completed(b"1"))])
            )
        assert [job.state for job in await call] == [State.COMPLETED] * 2

    live(test)


def test_no_job_of_a_gang_begins_if_one_offer_is_rejected() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local = Local(server)
        plain, poll = polling(server, "a", supports_offers=False), polling(server, "b")
        await server.engine.flush()
        call = invoke(server, 3)
        [offer] = (await poll).leases

        await server.engine.sessions.work(make_poll("b", reject=[(offer.key, "I am busy")]))

        await refused(server, call)
        assert local.begun == []
        assert not plain.done()
        await disconnect(plain)

    live(test)


def test_an_accepted_lease_is_revoked_when_another_worker_does_not_reply() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        await server.engine.sessions.work(make_poll("away"))  # it has a slot and does not poll
        poll = polling(server, "b")
        await server.engine.flush()
        call = invoke(server, 2)
        [offer] = (await poll).leases

        response = await server.engine.sessions.work(make_poll("b", accept=[offer.key]))

        assert response.revoked == [offer.key]
        await refused(server, call)

    live(test)


@pytest.mark.parametrize("supports_offers", [True, False])
def test_a_gang_waits_for_a_worker_between_two_polls(supports_offers: bool) -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local = Local(server)
        await server.engine.sessions.work(make_poll("a", supports_offers=supports_offers))
        call = invoke(server, 2)
        await loop.pass_time(0.2)
        assert local.begun == []

        [lease] = (await polling(server, "a", supports_offers=supports_offers)).leases
        if supports_offers:
            await server.engine.sessions.work(make_poll("a", accept=[lease.key]))

        assert len(local.begun) == 1
        local.end()
        done = AttemptResult(lease.key, Completed(b"1"))
        await server.engine.sessions.work(make_poll("a", reports=[done]))
        assert [job.state for job in await call] == [State.COMPLETED] * 2

    live(test)


def test_a_gang_of_local_workers_begins_at_once() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local = Local(server, slots=3)
        call = invoke(server, 3)
        await loop.pass_time(0.1)

        local.end()

        assert [job.state for job in await call] == [State.COMPLETED] * 3
        assert list(leftovers(server.engine)) == []

    live(test)


def test_a_worker_that_leaves_with_an_open_offer_ends_the_gang() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local, call, _ = await half_offered(server)

        await server.engine.sessions.work(make_poll("b", is_draining=True, running=frozenset()))

        await refused(server, call)
        assert local.begun == []

    live(test)


def test_the_death_of_a_local_worker_ends_the_gang() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local, call, offer = await half_offered(server)

        server.engine.detach("local", "it died")
        await server.engine.flush()
        response = await server.engine.sessions.work(make_poll("b", accept=[offer.key]))

        assert response.revoked == [offer.key]
        assert local.begun == []
        call.cancel()

    live(test)


def test_the_freeze_of_a_server_ends_a_gang_that_has_not_begun() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local, call, _ = await half_offered(server, local_slots=2)

        frozen = await server.engine.freezing.freeze("handover-1")

        states = {job.state for job in (await server.disk.jobs()).values()}
        assert (local.begun, frozen.held, states) == ([], [], {State.FAILED})
        await server.engine.freezing.reopen()
        call.cancel()

    live(test)


def test_a_cancelled_job_ends_its_gang_before_it_begins() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        poll = [polling(server, name) for name in "ab"]
        await server.engine.flush()
        call = invoke(server, 2)
        offers = [(await poll).leases[0] for poll in poll]

        await server.engine.cancel(offers[0].key.job_id)
        await loop.pass_time(1.0)

        states = {(await server.engine.get(offer.key.job_id)).state for offer in offers}
        assert states <= {State.CANCELLED, State.FAILED}
        assert list(leftovers(server.engine)) == []
        call.cancel()

    live(test)


def test_a_gang_ends_when_the_store_fails() -> None:
    async def test(loop: VirtualLoop) -> None:
        server = await Server(loop, Disk()).start()
        local, call, _ = await half_offered(server)
        server.disk.commit_fails = 1.0
        with pytest.raises(SchedoError):
            await submitted(server)
        await works_again(server, loop)

        await asyncio.wait([call], timeout=60)

        assert isinstance(call.exception(), SchedoError)
        assert local.begun == []
        await server.engine.flush()
        assert list(leftovers(server.engine)) == []

    live(test)


@pytest.mark.parametrize("delay_s", [0.001, 0.6])
@pytest.mark.parametrize("turns", range(14))
def test_a_client_that_disconnects_at_any_moment_leaves_no_stuck_job(
    turns: int, delay_s: float
) -> None:
    async def test(loop: VirtualLoop) -> None:
        disk = Disk()
        disk.delay_s = delay_s
        server = await Server(loop, disk).start()
        local = Local(server, slots=2)
        await server.engine.sessions.work(make_poll("away"))  # it has a slot and does not poll
        call = invoke(server, 3)
        for _ in range(turns):
            await loop.pass_time(0)
        call.cancel()
        await asyncio.wait([call])

        await loop.pass_time(5.0)
        await server.engine.flush()

        found = await all_jobs(server.engine.store)
        assert {job.state for job in found} <= {State.FAILED}
        assert local.begun == []
        assert list(leftovers(server.engine)) == []

    live(test)
