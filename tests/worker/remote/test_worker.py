"""`schedo.Worker` in a program: it runs an application's tasks and drains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schedo import CurrentJob, Schedo, Worker, current_job
from schedo.errors import Forbidden, Invalid
from tests.worker import raised
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


class Factory:
    """An application whose handlers signal their progress to the test."""

    def __init__(self) -> None:
        self.app = Schedo()
        self.app.task(raised.raise_kind)
        self.app.task(raised.raise_kind_plainly)
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.was_cancelled = asyncio.Event()

        @self.app.task(retries=2, timeout="30s")
        async def increment(Num: int) -> dict[str, int]:
            return {"Num": Num + 1}

        @self.app.task
        def attempt() -> int:
            return current_job().attempt

        @self.app.task
        async def wait() -> str:
            self.began.set()
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.was_cancelled.set()
                raise
            return "done"


def test_a_ready_file_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"ready_file = .*missing.*: cannot be written: No such file"):
        Worker(server="http://127.0.0.1:1", ready_file=tmp_path / "missing" / "ready")


async def test_the_hooks_of_the_application_run_in_the_worker(server: WorkServer) -> None:
    story: list[str] = []

    async def live(app: Schedo) -> AsyncIterator[None]:
        story.append("start")
        yield
        story.append("stop")

    app = Schedo(lifespan=live)

    @app.around
    async def around(job: CurrentJob) -> AsyncIterator[None]:
        yield
        story.append(f"after {job.task}")

    @app.task
    async def increment(Num: int) -> int:
        return Num + 1

    worker = Running(Worker(app, server=server.url, name="w1", slots=1))
    (await server.next_poll()).answer(leases=[lease_of("increment", {"Num": 1})])
    results = await hear_results(server, 1)
    worker.run.cancel()
    await asyncio.gather(worker.run, return_exceptions=True)

    assert [each["result"] for each in results.values()] == [2]
    assert story == ["start", "after increment", "stop"]


@pytest.fixture
def factory() -> Factory:
    return Factory()


class Running:
    """A running worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.run = asyncio.create_task(worker.run())

    async def end(self) -> None:
        """Wait for the end of run(); raise its error."""
        async with asyncio.timeout(20):
            await self.run


@pytest.fixture
async def running(
    server: WorkServer, factory: Factory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Running]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    worker = Worker(
        factory.app,
        server=server.url,
        token="sesame-sesame-1234",
        name="w1",
        slots=2,
        labels={"region": "eu"},
        resources={"cpu": 4},
        allow_shell=True,
        output_dir=tmp_path / "outputs",
        grace="60s",
    )
    running = Running(worker)
    yield running
    running.run.cancel()
    await asyncio.gather(running.run, return_exceptions=True)


async def test_a_worker_announces_the_tasks_of_its_application(
    server: WorkServer, running: Running
) -> None:
    poll = await server.next_poll()

    assert poll.body["tasks"] == [
        "attempt",
        "http",
        "increment",
        "raise_kind",
        "raise_kind_plainly",
        "shell",
        "wait",
    ]
    assert poll.body["task_defaults"]["increment"]["timeout"] == "30s"
    assert (poll.body["labels"], poll.body["resources"]) == ({"region": "eu"}, {"cpu": 4})
    assert poll.headers["authorization"] == "Bearer sesame-sesame-1234"


async def hear_results(server: WorkServer, count: int) -> dict[str, Any]:
    """Return the results of this many leases, by lease."""
    results: dict[str, Any] = {}
    while len(results) < count:
        heard = await asyncio.wait(
            [asyncio.create_task(server.next_poll()), asyncio.create_task(server.next_report())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in heard[1]:
            task.cancel()
        for task in heard[0]:
            exchange = task.result()
            results |= {result["lease"]: result for result in exchange.results}
            if not exchange.is_poll:
                exchange.answer()
    return results


async def test_any_error_of_a_handler_fails_its_attempt_and_not_the_worker(
    server: WorkServer, running: Running
) -> None:
    cases = [(kind, is_async) for kind in raised.KINDS for is_async in (True, False)]
    leases = {lease_text(number): case for number, case in enumerate(cases, start=1)}
    (await server.next_poll()).answer(
        leases=[
            lease_of("raise_kind" if is_async else "raise_kind_plainly", {"kind": kind}, lease=text)
            for text, (kind, is_async) in leases.items()
        ]
    )

    results = await hear_results(server, len(leases))

    for text, (kind, is_async) in leases.items():
        assert results[text]["outcome"] == "failed", kind
        assert results[text]["error"]["type"] == raised.shown(kind, is_async=is_async)
    assert not running.run.done()


async def test_a_worker_runs_tasks_of_all_kinds(
    server: WorkServer, running: Running, tmp_path: Path
) -> None:
    first, second, third = map(lease_text, (1, 2, 3))
    (await server.next_poll()).answer(
        leases=[
            lease_of("increment", {"Num": 1}, lease=first),
            lease_of("attempt", {}, lease=second),
            lease_of("shell", {"command": "echo $SCHEDO_ATTEMPT"}, lease=third),
        ]
    )
    results = await hear_results(server, 3)

    assert results[first]["result"] == {"Num": 2}
    assert results[second]["result"] == 1
    assert results[third]["result"] == {"exit_code": 0}
    assert results[third]["output"] == [{"stream": "stdout", "total_bytes": 2, "text": "1\n"}]
    assert [path.read_text() for path in (tmp_path / "outputs").glob("*.stdout")] == ["1\n"]


async def answer_until_the_end(server: WorkServer, running: Running) -> list[dict[str, Any]]:
    """Respond to the remaining requests of the worker, and return the results in them."""
    results = []
    while not running.run.done():
        waits = [asyncio.create_task(each()) for each in (server.next_poll, server.next_report)]
        done, _ = await asyncio.wait([*waits, running.run], return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            if wait in done:
                exchange = wait.result()
                results += exchange.results
                exchange.answer()
            else:
                wait.cancel()
    await running.end()
    return results


async def test_stop_now_releases_the_attempts(
    server: WorkServer, running: Running, factory: Factory
) -> None:
    (await server.next_poll()).answer(leases=[lease_of("wait", {})])
    await factory.began.wait()

    running.worker.stop()
    running.worker.stop_now()

    results = await answer_until_the_end(server, running)
    assert {(result["lease"], result["outcome"]) for result in results} == {(LEASE, "stopped")}
    assert factory.was_cancelled.is_set()


async def test_a_drained_worker_ends(
    server: WorkServer, running: Running, factory: Factory
) -> None:
    (await server.next_poll()).answer(leases=[lease_of("wait", {})], drain=True)
    await factory.began.wait()
    poll = await server.next_poll()
    assert poll.body["draining"] is True
    factory.may_end.set()

    results = await answer_until_the_end(server, running)

    assert {result["outcome"] for result in results} == {"completed"}


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the worker has logged of its drain."""
    texts = [each.message for each in caplog.records if each.name == "schedo.worker"]
    return [text for text in texts if "drain" in text]


async def test_a_worker_logs_at_once_that_an_operator_drains_it(
    server: WorkServer, running: Running, factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.worker")
    (await server.next_poll()).answer(leases=[lease_of("wait", {})], drain=True)
    await factory.began.wait()
    poll = await server.next_poll()

    while_it_runs = logged(caplog)
    poll.answer()
    factory.may_end.set()
    await answer_until_the_end(server, running)

    assert while_it_runs == [
        "draining: an operator has asked for it; 1 attempt still runs and has no time limit"
    ]
    assert logged(caplog) == while_it_runs


async def test_a_worker_without_attempts_names_no_time_for_them_when_it_drains(
    server: WorkServer, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.worker")
    (await server.next_poll()).answer(drain=True)
    await answer_until_the_end(server, running)

    assert logged(caplog) == ["draining: an operator has asked for it; no attempt runs"]


async def test_a_worker_that_is_stopped_names_the_time_of_its_attempts(
    server: WorkServer, running: Running, factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "schedo.worker")
    (await server.next_poll()).answer(leases=[lease_of("wait", {})])
    await factory.began.wait()

    running.worker.stop()
    poll = await server.next_poll()
    while not poll.body.get("draining"):
        poll = await server.next_poll()

    assert logged(caplog) == ["draining: 1 attempt still runs and has 60 s to finish"]


async def test_a_worker_that_the_server_refuses_raises(
    server: WorkServer, running: Running
) -> None:
    (await server.next_poll()).refuse(403, "forbidden", "this token is not for the task 'http'")

    with pytest.raises(Forbidden, match="not for the task"):
        await running.end()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no server": ({"server": None}, "set SCHEDO_URL"),
    "a server of another kind": ({"server": "ftp://x"}, "write it as http://"),
    "a token of two lines": ({"token": "a\nb"}, "one line"),
    "outputs of nothing": ({"output_dir": "out"}, "this worker may not run commands"),
    "a grace": ({"grace": "soon"}, "grace = 'soon'"),
    "a silence": ({"session_timeout": "1s"}, "session_timeout = 1 s"),
    "a task that is not there": ({"tasks": ["fly"]}, "'fly'"),
}


@pytest.mark.parametrize(("options", "reason"), WRONG.values(), ids=list(WRONG))
def test_a_bad_option_is_refused_by_name(
    options: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDO_URL", raising=False)

    with pytest.raises(Invalid) as caught:
        Worker(**{"server": "http://127.0.0.1:1", **options})

    assert reason in str(caught.value)


def test_a_worker_may_announce_only_some_of_its_tasks(factory: Factory) -> None:
    worker = Worker(factory.app, server="http://127.0.0.1:1", tasks=["increment"])

    assert worker.tasks == ["increment"]
