"""The old process of an upgrade sees its attempts through, as a worker of the new server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from schedo import report_progress
from schedo.clock import SystemClock
from schedo.core.leases import AttemptResult, Completed, Stopped
from schedo.core.model import Job, JobSpec
from schedo.core.states import State
from schedo.engine.call_results import Accepted
from schedo.engine.engine import Engine
from schedo.errors import SchedoError, Unavailable
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.current_job import enter
from schedo.tasks.runner import AttemptContext
from schedo.web.app import build_app
from schedo.web.permissions import ANYONE
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings
from schedo.worker.drainer import Drainer
from schedo.worker.in_process import LocalWorker

NAME = "handover-7"
SETTINGS = WebSettings(tokens={}, anyone=ANYONE)


class Handler:
    """A runner that ends when the test says so, or when it is stopped."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        enter(context)
        self.begun.release()
        stopped = asyncio.ensure_future(context.stop.wait())
        ending = asyncio.ensure_future(self.may_end.wait())
        await asyncio.wait((stopped, ending), return_when=asyncio.FIRST_COMPLETED)
        report_progress(message="almost done")
        outcome = Completed(b'"mine"') if ending.done() else Stopped()
        stopped.cancel()
        ending.cancel()
        return AttemptResult(context.lease.key, outcome)


async def submit(engine: Engine) -> Job:
    accepted: list[Accepted[Job] | SchedoError] = await engine.submit([JobSpec("work")])
    assert isinstance(accepted[0], Accepted)
    return accepted[0].job


class Old:
    """A server on a file, which a new one replaces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path)
        self.engine = Engine(self.store, SystemClock())
        self.handler = Handler()
        self.local = LocalWorker(self.engine, "local", 4, {"work": self.handler})

    async def run_job(self) -> Job:
        """Submit a job and return it when its handler has begun."""
        job = await submit(self.engine)
        await self.handler.begun.acquire()
        return job


@asynccontextmanager
async def replaced(old: Old) -> AsyncIterator[tuple[Engine, Drainer]]:
    """Yield the engine of a new server on the old one's file, and the drainer of the old one."""
    descriptors = [os.dup(each) for each in old.store.lock_descriptors()]
    frozen = await old.engine.freezing.freeze(NAME)
    store = SqliteStore(old.path)
    store.inherit(*descriptors)
    new, server = Engine(store, SystemClock()), HttpServer()
    await new.start()
    port = await server.start(build_app(new, SETTINGS), "127.0.0.1", 0)
    connect = partial(asyncio.open_connection, "127.0.0.1", port)
    drainer = Drainer(NAME, old.engine.freezing, frozen.held, connect)
    passing = asyncio.create_task(drainer.pass_on())
    try:
        yield new, drainer
    finally:
        passing.cancel()
        await server.stop(grace_s=0.1)
        await new.stop()


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[Old]:
    old = Old(tmp_path / "jobs.db")
    await old.engine.start()
    old.local.attach()
    yield old
    await old.local.drain(0)
    await old.engine.stop()


async def test_an_attempt_ends_once_with_its_own_result(old: Old) -> None:
    job = await old.run_job()
    async with replaced(old) as (new, drainer), asyncio.timeout(30):
        draining = asyncio.create_task(drainer.run())
        old.handler.may_end.set()
        ended = await new.wait(job.id, 20)
        await draining

    assert (ended.state, ended.attempt, ended.result) == (State.COMPLETED, 1, b'"mine"')
    assert (ended.worker, ended.losses) == (NAME, 0)


async def test_a_result_that_came_before_the_new_server_served_is_sent(old: Old) -> None:
    job = await old.run_job()
    old.handler.may_end.set()
    async with replaced(old) as (new, drainer), asyncio.timeout(30):
        await drainer.run()
        ended = await new.get(job.id)

    assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


async def test_results_are_sent_if_all_attempts_ended_before_the_drain_began(old: Old) -> None:
    job = await old.run_job()
    async with replaced(old) as (new, drainer), asyncio.timeout(30):
        old.handler.may_end.set()
        await drainer.attempts.wait_idle()  # the result is taken, and not sent yet
        await drainer.run()
        ended = await new.get(job.id)

    assert (ended.state, ended.attempt) == (State.COMPLETED, 1)


async def test_a_cancelled_attempt_stops(old: Old) -> None:
    job = await old.run_job()
    async with replaced(old) as (new, drainer), asyncio.timeout(30):
        draining = asyncio.create_task(drainer.run())
        await new.cancel(job.id)
        await draining
        ended = await new.get(job.id)

    assert (ended.state, ended.attempt) == (State.CANCELLED, 1)


async def test_the_drainer_gets_no_new_work(old: Old) -> None:
    await old.run_job()
    async with replaced(old) as (new, drainer), asyncio.timeout(30):
        draining = asyncio.create_task(drainer.run())
        job = await submit(new)
        old.handler.may_end.set()
        await draining
        waiting = await new.get(job.id)

    assert waiting.state is State.QUEUED


async def test_the_attempts_of_a_worker_that_dies_are_lost(old: Old) -> None:
    job = await old.run_job()
    async with replaced(old) as (new, drainer), asyncio.timeout(30):
        draining = asyncio.create_task(drainer.run())
        old.engine.detach("local", "its process has ended")
        await draining
        lost = await new.get(job.id)

    assert (lost.state, lost.losses) == (State.QUEUED, 1)


async def test_a_command_of_an_old_client_is_refused(old: Old) -> None:
    await old.run_job()
    async with replaced(old) as (_, drainer), asyncio.timeout(30):
        draining = asyncio.create_task(drainer.run())
        with pytest.raises(SchedoError, match="another process serves here now"):
            await old.engine.submit([JobSpec("work")])
        old.handler.may_end.set()
        await draining


async def test_a_process_without_attempts_ends_at_once(old: Old) -> None:
    async with replaced(old) as (_, drainer), asyncio.timeout(30):
        await drainer.run()


async def test_a_server_that_is_gone_is_an_error_when_the_attempts_have_ended(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.worker.drainer.LEAVE_S", 0.1)
    await old.run_job()

    async def refuse() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError

    frozen = await old.engine.freezing.freeze(NAME)
    old.handler.may_end.set()
    drainer = Drainer(NAME, old.engine.freezing, frozen.held, refuse)
    passing = asyncio.create_task(drainer.pass_on())
    with pytest.raises(Unavailable, match="1 results could not be reported"):
        await drainer.run()
    passing.cancel()
