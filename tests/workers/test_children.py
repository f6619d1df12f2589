"""An application in real child processes: what it can do, and whom it can hurt.

The handlers are in example_app.py. Tests wait for jobs and for named pipes, never for time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schedo.clock import SystemClock
from schedo.core.ids import parse_id
from schedo.core.model import JobSpec, Options, Retry
from schedo.engine.engine import Engine
from schedo.store.sqlite import SqliteStore
from schedo.workers.attendant import CannotServe, Patience, describe_exit
from schedo.workers.children import ChildProcesses
from schedo.workers.desk import Record, Ticket
from schedo.workers.engine_desk import EngineDesk
from tests.workers.calls import both_loops, wait_gone

TARGET = "tests.workers.example_app:app"
HASTY = Patience(pulse_s=0.05, stalled_s=0.5, grace_s=0.2)
LONG_S = 30.0


class Site:
    """An engine on a real file with an application's child processes."""

    def __init__(self, path: Path, target: str, processes: int, slots: int) -> None:
        self.engine = Engine(SqliteStore(path / "jobs.db"), SystemClock())
        self.children = ChildProcesses(
            self.engine, target, processes=processes, slots=slots, patience=HASTY
        )
        self.desk = EngineDesk(self.engine)

    async def submit(self, task: str, *, options: Options | None = None, **payload: Any) -> str:
        spec = JobSpec(task, msgspec.json.encode(payload), options=options or Options())
        (ticket,) = await self.desk.submit([spec])
        assert isinstance(ticket, Ticket), ticket
        return ticket.id

    async def end(self, job_id: str) -> Record:
        record = await self.desk.wait(job_id, LONG_S)
        assert "result" in record or "error" in record or record["state"] == "cancelled", record
        return record

    async def run(self, task: str, *, options: Options | None = None, **payload: Any) -> Record:
        return await self.end(await self.submit(task, options=options, **payload))


@asynccontextmanager
async def serving(
    path: Path, target: str = TARGET, *, processes: int = 1, slots: int = 4
) -> AsyncIterator[Site]:
    site = Site(path, target, processes, slots)
    await site.engine.start()
    try:
        await site.children.start()
        try:
            yield site
        finally:
            await site.children.stop(0)
    finally:
        await site.engine.stop()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with serving(tmp_path) as running:
        yield running


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


async def say(pipe: Path, text: str) -> None:
    """Write once a handler reads."""
    async with asyncio.timeout(LONG_S):
        await asyncio.to_thread(pipe.write_text, text)


async def hear(pipe: Path) -> str:
    """Return what a handler writes."""
    async with asyncio.timeout(LONG_S):
        return await asyncio.to_thread(pipe.read_text)


ONCE = Options(retry=Retry(max_attempts=1))


# Running.


async def test_async_and_plain_tasks_run_in_another_process(site: Site) -> None:
    pids = {(await site.run(task))["result"] for task in ("where", "where_plainly")}

    assert len(pids) == 1
    assert os.getpid() not in pids


@both_loops
def test_the_server_may_run_on_either_event_loop(
    tmp_path: Path, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> list[Any]:
        async with serving(tmp_path, processes=2) as site:
            died = site.run("die_once", mark=str(tmp_path / "mark"), how="exit")
            jobs = [site.run("add", a=n, b=1) for n in range(10)]
            return [record["result"] for record in await asyncio.gather(died, *jobs)]

    with asyncio.Runner(loop_factory=make_loop) as runner:
        results = runner.run(main())

    assert results == ["survived", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


async def test_a_payload_and_a_result_may_be_as_large_as_the_limits(site: Site) -> None:
    text = "x" * 1_048_000

    ended = [await site.submit("echo", text=text) for _ in range(3)]

    assert [(await site.end(job))["result"] for job in ended] == [text] * 3


async def test_a_child_gets_no_setting_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDO_TOKEN", "secret")

    async with serving(tmp_path) as site:
        assert (await site.run("settings"))["result"] == []


async def test_a_schedule_in_the_code_is_put_when_it_is_served(site: Site) -> None:
    schedule = await site.engine.get_schedule("report")

    assert schedule.spec.rule.cron == "0 9 * * MON-FRI"
    assert schedule.spec.rule.tz == "Europe/Paris"
    assert schedule.spec.job.task == "report"


@pytest.mark.parametrize("task", ["add_elsewhere", "add_elsewhere_plainly"])
async def test_a_handler_can_enqueue_another_job_and_await_it(site: Site, task: str) -> None:
    assert (await site.run(task, a=2, b=3))["result"] == 5


async def test_a_handler_can_look_at_jobs_and_cancel_them(site: Site) -> None:
    assert (await site.run("enqueue_and_cancel"))["result"] == ["scheduled", "cancelled"]


async def test_a_handler_gets_the_error_when_its_job_is_refused(site: Site) -> None:
    error = (await site.run("enqueue_twice", key="k", options=ONCE))["error"]

    assert error["type"] == "DuplicateKey"
    assert "holds the key 'k'" in error["message"]


# Dying.


async def test_a_handler_that_exits_fails_and_its_process_stays(site: Site) -> None:
    before = (await site.run("where"))["result"]

    error = (await site.run("leave", options=ONCE))["error"]

    assert (error["type"], error["message"]) == ("SystemExit", "3")
    assert (await site.run("where"))["result"] == before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", "the process exited with code 7"),
        ("crash", "the process was killed by SIGSEGV"),
        ("garbage", "it was killed because it does not speak the protocol"),
    ],
)
async def test_a_process_that_dies_loses_its_attempt_and_is_replaced(
    site: Site, tmp_path: Path, how: str, message: str
) -> None:
    before = (await site.run("where"))["result"]
    job = await site.submit("die_once", mark=str(tmp_path / "mark"), how=how)
    record = await site.end(job)

    assert (record["result"], record["attempt"], record["losses"]) == ("survived", 2, 1)
    (lost,) = await site.engine.store.list_attempts(parse_id(job))
    assert lost.outcome == "lost"
    assert lost.failure is not None
    assert message in lost.failure.message
    assert (await site.run("where"))["result"] != before


async def test_a_dying_process_hurts_only_its_own_attempts(tmp_path: Path, pipe: Path) -> None:
    async with serving(tmp_path, processes=2, slots=1) as site:
        waiting = await site.submit("wait_for", pipe=str(pipe))
        dying = await site.run("die_once", mark=str(tmp_path / "mark"), how="exit")
        await say(pipe, "fine")
        waited = await site.end(waiting)

    assert (dying["losses"], waited["losses"]) == (1, 0)
    assert (waited["result"], waited["attempt"]) == ("fine", 1)


# Blocking.


async def test_a_blocked_process_gives_back_what_it_has_not_started(site: Site, pipe: Path) -> None:
    blocked = await site.submit("block", pipe=str(pipe))
    others = [await site.submit("add", a=n, b=1) for n in range(3)]

    results = [(await site.end(job))["result"] for job in others]
    await say(pipe, "unblocked")
    record = await site.end(blocked)

    assert results == [1, 2, 3]
    assert (record["result"], record["attempt"], record["losses"]) == ("unblocked", 1, 0)


async def test_jobs_handed_back_by_a_blocked_process_run_once(
    site: Site, pipe: Path, tmp_path: Path
) -> None:
    blocked = await site.submit("block", pipe=str(pipe))
    other = await site.submit("add", a=1, b=1)
    await site.end(other)
    await say(pipe, "")
    await site.end(blocked)
    await site.children.stop(LONG_S)  # the blocked process has had its say, too

    attempts = await site.engine.store.list_attempts(parse_id(other))

    assert [attempt.outcome for attempt in attempts] == ["handed_back"]


async def test_a_blocked_handler_that_times_out_is_killed(site: Site, pipe: Path) -> None:
    options = Options(retry=Retry(max_attempts=1), timeout_us=100_000)

    record = await site.run("block", pipe=str(pipe), options=options)

    assert (record["state"], record["error"]["type"]) == ("failed", "timeout")
    assert (await site.run("add", a=1, b=2))["result"] == 3


async def test_a_handler_that_ignores_its_stop_costs_its_process(site: Site, pipe: Path) -> None:
    before = (await site.run("where"))["result"]
    job = await site.submit("stubborn", pipe=str(pipe))
    await hear(pipe)

    await site.desk.cancel(job)

    assert (await site.end(job))["state"] == "cancelled"
    assert await asyncio.to_thread(wait_gone, before, LONG_S)
    assert (await site.run("where"))["result"] != before


async def test_a_process_is_replaced_only_after_its_other_attempts_have_ended(
    site: Site, pipe: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "other")
    waiting = await site.submit("wait_for", pipe=str(tmp_path / "other"))
    job = await site.submit("stubborn", pipe=str(pipe))
    await hear(pipe)
    await site.desk.cancel(job)
    await site.end(job)
    await say(tmp_path / "other", "fine")

    record = await site.end(waiting)

    assert (record["result"], record["attempt"], record["losses"]) == ("fine", 1, 0)


async def test_a_plain_function_learns_that_it_was_cancelled(site: Site, pipe: Path) -> None:
    job = await site.submit("watchful", pipe=str(pipe))
    await hear(pipe)

    await site.desk.cancel(job)

    assert await hear(pipe) == "stopping"
    assert (await site.end(job))["state"] == "cancelled"


# Starting and stopping.


@pytest.mark.parametrize(
    ("code", "target", "reason"),
    [
        ("", "nowhere:app", "ModuleNotFoundError: No module named 'nowhere'"),
        ("1 / 0", "broken:app", 'broken.py", line 1, in <module>\n    1 / 0\n'),
        ("raise SystemExit(4)", "broken:app", "SystemExit: 4"),
        ("x = 1", "broken:app", "broken has no 'app'"),
        ("app = 1", "broken", "broken is a int, not a Schedo application"),
        ("x = 1", ":app", "write module:attribute"),
        ("import os; os._exit(9)", "broken:app", "the process exited with code 9"),
    ],
    ids=["no module", "raises", "exits", "no name", "no app", "no target", "dies"],
)
async def test_an_application_that_cannot_be_imported_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, target: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(code)

    with pytest.raises(CannotServe) as caught:
        async with serving(tmp_path, target):
            pass

    assert reason in str(caught.value)
    assert "importlib" not in str(caught.value)


async def test_stopping_lets_running_attempts_end(tmp_path: Path, pipe: Path) -> None:
    async with serving(tmp_path) as site:
        pid = (await site.run("where"))["result"]
        job = await site.submit("wait_for", pipe=str(pipe))
        stopping = asyncio.create_task(site.children.stop(LONG_S))
        await say(pipe, "in time")
        await stopping

        assert (await site.end(job))["result"] == "in time"
        assert wait_gone(pid, 0)


async def test_stopping_hands_back_what_does_not_end_in_time(tmp_path: Path, pipe: Path) -> None:
    async with serving(tmp_path) as site:
        job = await site.submit("stubborn", pipe=str(pipe))
        once = await site.submit("where", options=Options(at_most_once=True))
        await site.end(once)
        await hear(pipe)

        await site.children.stop(0)
        record = await site.desk.get(job)

    assert (record["state"], record["attempt"]) == ("queued", 1)
    assert "losses" not in record or record["losses"] == 0


def test_a_child_does_not_outlive_a_killed_server(tmp_path: Path, pipe: Path) -> None:
    code = f"""
import asyncio, pathlib
from tests.workers.test_children import serving
async def main():
    async with serving(pathlib.Path({str(tmp_path)!r})) as site:
        print((await site.run("where"))["result"], flush=True)
        await site.run("block", pipe={str(pipe)!r})
asyncio.run(main())
"""
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        with pipe.open("w"):  # the handler blocks its loop, for it has opened the other end
            server.kill()
            server.wait(LONG_S)

            assert wait_gone(child, LONG_S)
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (0, "the process exited with code 0"),
        (-9, "the process was killed by SIGKILL"),
        (-34, "the process was killed by SIGRTMIN"),
        (-35, "the process was killed by signal 35"),
    ],
)
def test_an_exit_is_told_in_words(status: int, wanted: str) -> None:
    assert describe_exit(status) == wanted
