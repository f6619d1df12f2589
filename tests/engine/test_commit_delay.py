"""Starts and ends wait a moment for a common commit, unless something waits for them."""

from __future__ import annotations

import asyncio

from schedo.core.limits import SECOND
from schedo.core.model import Job, JobSpec, Options
from schedo.core.states import State
from schedo.engine.committer import COMMIT_DELAY_S, COMMIT_SLACK_S
from schedo.testing.loop import VirtualLoop
from tests.engine.virtual_server import Disk, Server, live, submitted
from tests.engine.world import T0, HandWorker

DUE = T0 + SECOND // 2  # between the rounds of the maintenance
COMMIT_S = 0.001  # that of the disk


class Lonely:
    """A server with a worker, and one durable job that is due in a moment."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.disk = Disk()
        self.server = Server(loop, self.disk)
        self.worker = HandWorker(self.server.engine)

    async def start(self, *, once: bool = False) -> Job:
        await self.server.start()
        self.worker.attach()
        job = await submitted(
            self.server, JobSpec("work", b"{}", run_at=DUE, options=Options(at_most_once=once))
        )
        await self.until(DUE)
        return job

    async def until(self, at: int) -> None:
        """Return a callback after all others of the instant."""
        await self.loop.pass_time((at - self.server.clock.now()) / SECOND)
        for _ in range(10):
            await self.loop.pass_time(0)

    async def stored(self, job: Job) -> State:
        return (await self.disk.jobs())[job.id].state


def test_a_start_and_its_end_share_one_commit() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        before = lonely.disk.commits
        lonely.worker.end()
        await loop.pass_time(COMMIT_DELAY_S + 2 * COMMIT_S)

        assert lonely.disk.commits == before + 1
        assert await lonely.stored(job) is State.COMPLETED

    live(run)


def test_a_start_is_durable_after_the_delay() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()

        assert await lonely.stored(job) is State.SCHEDULED
        await loop.pass_time(COMMIT_DELAY_S + 2 * COMMIT_S)
        assert await lonely.stored(job) is State.RUNNING

    live(run)


def test_later_changes_do_not_extend_the_delay() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        await loop.pass_time(COMMIT_DELAY_S - COMMIT_S)
        lonely.worker.end()
        await loop.pass_time(3 * COMMIT_S)

        assert await lonely.stored(job) is State.COMPLETED

    live(run)


def test_an_end_shortly_before_the_commit_takes_it_along() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        before = lonely.disk.commits
        await loop.pass_time(COMMIT_DELAY_S - COMMIT_SLACK_S + COMMIT_S / 2)
        lonely.worker.end()
        await loop.pass_time(1.5 * COMMIT_S)  # before the delay is over

        assert lonely.disk.commits == before + 1
        assert await lonely.stored(job) is State.COMPLETED
        await loop.pass_time(1.0)
        assert lonely.disk.commits == before + 1

    live(run)


def test_an_end_long_before_the_commit_waits_for_it() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        await lonely.start()
        before = lonely.disk.commits
        await loop.pass_time(COMMIT_DELAY_S - 2 * COMMIT_SLACK_S)
        lonely.worker.end()
        await loop.pass_time(COMMIT_SLACK_S)

        assert lonely.disk.commits == before

    live(run)


def test_a_caller_that_waits_for_an_end_waits_for_no_delay() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        waiting = asyncio.ensure_future(lonely.server.engine.wait(job.id, 60))
        await lonely.until(DUE + 2_000)
        ended_at = loop.time()
        lonely.worker.end()

        assert (await waiting).state is State.COMPLETED
        assert loop.time() - ended_at < 1.5 * COMMIT_S

    live(run)


def test_a_caller_that_comes_after_the_end_waits_for_no_delay() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        lonely.worker.end()
        await lonely.until(DUE)
        asked_at = loop.time()

        assert (await lonely.server.engine.wait(job.id, 60)).state is State.COMPLETED
        assert loop.time() - asked_at < 1.5 * COMMIT_S

    live(run)


def test_a_job_that_runs_at_most_once_waits_for_its_commit_alone() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start(once=True)
        assert not lonely.worker.leases
        await lonely.until(DUE + 1_500)

        assert [lease.key.job_id for lease in lonely.worker.leases] == [job.id]
        assert await lonely.stored(job) is State.RUNNING

    live(run)


def test_the_commit_of_a_submit_carries_the_changes_that_wait() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        before = lonely.disk.commits
        await submitted(lonely.server)

        assert lonely.disk.commits == before + 1
        assert await lonely.stored(job) is State.RUNNING

    live(run)


def test_a_commit_cancels_the_delay_of_what_it_carries() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        await lonely.start()
        await lonely.server.engine.flush()
        before = lonely.disk.commits
        await loop.pass_time(1.0)

        assert lonely.disk.commits == before

    live(run)


def test_a_job_whose_start_is_lost_with_the_server_runs_again() -> None:
    async def run(loop: VirtualLoop) -> None:
        lonely = Lonely(loop)
        job = await lonely.start()
        lonely.worker.end()
        await lonely.until(DUE + 1_000)
        await lonely.server.die()
        server = await Server(loop, lonely.disk).start()
        worker = HandWorker(server.engine)
        worker.attach()
        await loop.pass_time(0.1)

        assert [(lease.key.job_id, lease.key.attempt) for lease in worker.leases] == [(job.id, 1)]

    live(run)
