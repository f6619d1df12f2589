"""A handler behaves alike in the server's loop, in a child process and on a remote worker.

Whatever carries the work, a job ends in the same way.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schedo.clock import SystemClock
from schedo.core.ids import parse_id
from schedo.core.model import JobSpec, Options
from schedo.engine.engine import Engine
from schedo.protocol.jobs import SubmittedJob
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.backend import Record
from schedo.tasks.python import TaskRunner
from schedo.tasks.threads import HandlerThreads
from schedo.web.app import build_app
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings
from schedo.worker.engine_backend import EngineBackend
from schedo.worker.in_process import LocalWorker
from schedo.worker.process.pool import PoolSettings, ProcessPool
from tests.e2e.transports_app import app

pytestmark = pytest.mark.e2e

TARGET = "tests.e2e.transports_app:app"
WAIT_S = 30.0
Transport = Callable[[Engine], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def in_the_loop(engine: Engine) -> AsyncIterator[None]:
    with HandlerThreads(4) as threads:
        runners = {name: TaskRunner(task, threads) for name, task in app.registry.tasks.items()}
        defaults = app.registry.task_defaults()
        worker = LocalWorker(engine, "embedded", 4, runners, task_defaults=defaults)
        worker.attach()
        yield
        await worker.drain(0)


@asynccontextmanager
async def in_a_child(engine: Engine) -> AsyncIterator[None]:
    children = ProcessPool(engine, TARGET, PoolSettings(processes=1, slots=4))
    await children.start()
    yield
    await children.stop(0)


@asynccontextmanager
async def over_http(engine: Engine) -> AsyncIterator[None]:
    server = HttpServer()
    web = build_app(engine, WebSettings())
    port = await server.start(web, "127.0.0.1", 0)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schedo", "worker", TARGET, "--name", "far", "--slots", "4"),
        *("--server", f"http://127.0.0.1:{port}", "--log-level", "warning"),
    )
    try:
        # The defaults of a task are known once a worker has registered it.
        async with asyncio.timeout(WAIT_S):
            while not any(seen.name == "far" for seen in engine.sessions.list()):
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        yield
    finally:
        process.kill()
        await process.wait()
        web.drain()
        await server.stop()


TRANSPORTS: dict[str, Transport] = {
    "in the loop": in_the_loop,
    "in a child": in_a_child,
    "on a remote worker": over_http,
}


class Site:
    """Run an engine on a real file with one kind of worker."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._desk = EngineBackend(engine)

    async def submit(self, task: str, *, options: Options | None = None, **payload: Any) -> str:
        spec = JobSpec(task, msgspec.json.encode(payload), options=options or Options())
        (ticket,) = await self._desk.submit_specs([spec])
        assert isinstance(ticket, SubmittedJob), ticket
        return ticket.id

    async def end(self, job_id: str) -> Record:
        return await self._desk.wait(job_id, WAIT_S)

    async def run(self, task: str, **payload: Any) -> Record:
        return await self.end(await self.submit(task, **payload))


@pytest.fixture(params=TRANSPORTS.values(), ids=list(TRANSPORTS))
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    engine = Engine(SqliteStore(tmp_path / "jobs.db"), SystemClock())
    await engine.start()
    try:
        async with request.param(engine):
            yield Site(engine)
    finally:
        await engine.stop()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


async def read_from(pipe: Path) -> str:
    async with asyncio.timeout(WAIT_S):
        return await asyncio.to_thread(pipe.read_text)


@pytest.mark.parametrize("task", ["add", "add_plainly"])
async def test_async_and_plain_handlers_return_their_results(site: Site, task: str) -> None:
    assert (await site.run(task, a=2, b=3))["result"] == 5


async def test_a_payload_and_a_result_may_be_as_large_as_their_limits(site: Site) -> None:
    text = "x" * 1_048_000

    assert (await site.run("echo", text=text))["result"] == text


async def test_a_handler_can_read_its_attempt(site: Site) -> None:
    options = Options(schedule="nightly")
    job_id = await site.submit("describe_attempt", options=options, note="n")

    described = (await site.end(job_id))["result"]

    assert described == {
        "id": job_id,
        "task": "describe_attempt",
        "queue": "default",
        "payload": {"note": "n"},
        "attempt": 1,
        "failures": 0,
        "max_attempts": 3,
        "schedule": "nightly",
        "has_worker": True,
    }


async def test_an_exception_fails_the_job_with_its_type_and_message(site: Site) -> None:
    ended = await site.run("fail")

    assert ended["state"] == "failed"
    assert (ended["error"]["type"], ended["error"]["message"]) == ("ValueError", "no such order")
    assert "raise ValueError" in ended["error"]["traceback"]


async def test_a_discarded_job_is_not_retried(site: Site) -> None:
    ended = await site.run("discard")

    assert (ended["state"], ended["attempt"]) == ("failed", 1)
    assert ended["error"]["message"] == "nobody wants it"


async def test_a_snoozed_job_runs_again(site: Site) -> None:
    ended = await site.run("snooze_once")

    assert (ended["state"], ended["result"]) == ("completed", "awake")
    assert (ended["attempt"], ended["failures"]) == (2, 0)


async def test_a_bad_payload_and_a_bad_result_fail_the_job_without_a_retry(site: Site) -> None:
    bad = await site.run("add", a="two", b=3)
    unprintable = await site.run("unprintable")

    assert [each["error"]["type"] for each in (bad, unprintable)] == [
        "bad-payload",
        "result-not-json",
    ]


@pytest.mark.parametrize("task", ["wait_for_stop", "wait_for_stop_in_thread"])
async def test_a_cancel_reaches_a_running_handler(site: Site, pipe: Path, task: str) -> None:
    job_id = await site.submit(task, pipe=str(pipe))
    assert await read_from(pipe) == "running"

    await site.engine.cancel(parse_id(job_id))

    assert (await site.end(job_id))["state"] == "cancelled"


async def test_progress_is_visible_while_a_handler_runs(site: Site, pipe: Path) -> None:
    job_id = parse_id(await site.submit("show", pipe=str(pipe)))

    async with asyncio.timeout(WAIT_S):
        while not (lines := site.engine.sessions.progress_of(job_id)):
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        await asyncio.to_thread(pipe.write_text, "done")

    update = lines[0].progress.update
    assert (update.percent, update.message) == (40, "page 4 of 10")
    assert update.log == "it has begun\nand goes on"
    assert (await site.engine.wait(job_id, WAIT_S)).result == b'"done"'
    assert site.engine.sessions.progress_of(job_id) == []


async def test_a_timeout_ends_a_running_handler(site: Site, pipe: Path) -> None:
    options = Options(timeout_us=300_000, at_most_once=True)
    job_id = await site.submit("wait_for_stop", options=options, pipe=str(pipe))
    assert await read_from(pipe) == "running"

    ended = await site.end(job_id)

    assert (ended["state"], ended["error"]["type"]) == ("failed", "timeout")


async def test_each_of_many_jobs_runs_once(site: Site) -> None:
    ids = [await site.submit("add", a=n, b=1) for n in range(200)]

    ended = [await site.end(each) for each in ids]

    assert [each["result"] for each in ended] == [n + 1 for n in range(200)]
    assert {each["attempt"] for each in ended} == {1}
