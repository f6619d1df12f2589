"""`schedo.Worker` in a program: it runs an application's tasks, and it leaves in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schedo import Schedo, Worker, current_job
from schedo.errors import Forbidden, Invalid
from tests.worker import raised
from tests.worker.remote.server import LEASE, WorkServer, lease_of, lease_text


class Factory:
    """An application whose handlers tell the test how they are."""

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


@pytest.fixture
def factory() -> Factory:
    return Factory()


class Running:
    """A worker that runs, and what it is made of."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.run = asyncio.create_task(worker.run())

    async def end(self) -> None:
        """Return when run() has; raise what it raised."""
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


async def test_a_worker_tells_what_its_application_can_do(
    server: WorkServer, running: Running
) -> None:
    ask = await server.asked()

    assert ask.body["tasks"] == [
        "attempt",
        "http",
        "increment",
        "raise_kind",
        "raise_kind_plainly",
        "shell",
        "wait",
    ]
    assert ask.body["task_defaults"]["increment"]["timeout"] == "30s"
    assert (ask.body["labels"], ask.body["resources"]) == ({"region": "eu"}, {"cpu": 4})
    assert ask.headers["authorization"] == "Bearer sesame-sesame-1234"


async def hear_results(server: WorkServer, count: int) -> dict[str, Any]:
    """Return the results of so many leases as they come, by lease."""
    results: dict[str, Any] = {}
    while len(results) < count:
        heard = await asyncio.wait(
            [asyncio.create_task(server.asked()), asyncio.create_task(server.told())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in heard[1]:
            task.cancel()
        for task in heard[0]:
            exchange = task.result()
            results |= {result["lease"]: result for result in exchange.results}
            if not exchange.asks:
                exchange.answer()
    return results


async def test_whatever_handlers_raise_their_attempts_fail_and_the_worker_stays(
    server: WorkServer, running: Running
) -> None:
    cases = [(kind, is_async) for kind in raised.KINDS for is_async in (True, False)]
    leases = {lease_text(number): case for number, case in enumerate(cases, start=1)}
    (await server.asked()).answer(
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


async def test_tasks_of_all_kinds_run(server: WorkServer, running: Running, tmp_path: Path) -> None:
    first, second, third = map(lease_text, (1, 2, 3))
    (await server.asked()).answer(
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


async def test_a_worker_that_is_stopped_lets_what_runs_end(
    server: WorkServer, running: Running, factory: Factory
) -> None:
    (await server.asked()).answer(leases=[lease_of("wait", {})])
    await factory.began.wait()
    await server.asked()

    running.worker.stop()
    ask = await server.asked()
    factory.may_end.set()
    told = await server.told()
    told.answer()
    ask.answer()

    assert (ask.body["draining"], ask.body["running"]) == (True, [LEASE])
    assert told.results == [{"lease": LEASE, "outcome": "completed", "result": "done"}]
    await answer_until_the_end(server, running)


async def answer_until_the_end(server: WorkServer, running: Running) -> list[dict[str, Any]]:
    """Answer what the worker still says, and return the results in it."""
    results = []
    while not running.run.done():
        waits = [asyncio.create_task(each()) for each in (server.asked, server.told)]
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


async def test_a_worker_in_a_hurry_gives_back_what_runs(
    server: WorkServer, running: Running, factory: Factory
) -> None:
    (await server.asked()).answer(leases=[lease_of("wait", {})])
    await factory.began.wait()

    running.worker.stop()
    running.worker.stop_now()

    results = await answer_until_the_end(server, running)
    assert {(result["lease"], result["outcome"]) for result in results} == {(LEASE, "stopped")}
    assert factory.was_cancelled.is_set()


async def test_a_worker_that_the_server_drains_ends(
    server: WorkServer, running: Running, factory: Factory
) -> None:
    (await server.asked()).answer(leases=[lease_of("wait", {})], drain=True)
    await factory.began.wait()
    ask = await server.asked()
    assert ask.body["draining"] is True
    factory.may_end.set()

    results = await answer_until_the_end(server, running)

    assert {result["outcome"] for result in results} == {"completed"}


async def test_a_worker_that_is_refused_raises(server: WorkServer, running: Running) -> None:
    (await server.asked()).refuse(403, "forbidden", "this token is not for the task 'http'")

    with pytest.raises(Forbidden, match="not for the task"):
        await running.end()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no server": ({"server": None}, "set SCHEDO_URL"),
    "a server of another kind": ({"server": "ftp://x"}, "write it as http://"),
    "a token of two lines": ({"token": "a\nb"}, "one line"),
    "outputs of nothing": ({"output_dir": "out"}, "this worker runs none"),
    "a grace": ({"grace": "soon"}, "grace = 'soon'"),
    "a silence": ({"session_timeout": "1s"}, "session_timeout = 1 s"),
    "a task that is not there": ({"tasks": ["fly"]}, "'fly'"),
}


@pytest.mark.parametrize(("options", "reason"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_option_is_refused_by_name(
    options: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDO_URL", raising=False)

    with pytest.raises(Invalid) as caught:
        Worker(**{"server": "http://127.0.0.1:1", **options})

    assert reason in str(caught.value)


def test_a_worker_may_offer_only_some_of_its_tasks(factory: Factory) -> None:
    worker = Worker(factory.app, server="http://127.0.0.1:1", tasks=["increment"])

    assert worker.tasks == ["increment"]
