"""An application in real child processes, and the isolation of its attempts.

The handlers are in example_app.py. Tests wait for jobs and for named pipes, never for time.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedo.child_process import describe_exit
from schedo.core.ids import parse_id
from schedo.core.model import Options, Retry
from schedo.core.requirements import Condition, Requirements
from schedo.core.strict_json import CheckedJson, decode_strictly
from schedo.core.worker_pool import PLACE_LABEL
from schedo.protocol.pieces import PIECE_BYTES
from tests.worker.calls import both_loops, wait_gone
from tests.worker.raised import KINDS, shown
from tests.worker.site import LONG_S, Site, read_from, serving, write_to

ONCE = Options(retry=Retry(max_attempts=1))


# Running.


async def test_async_and_plain_tasks_run_in_another_process(site: Site) -> None:
    pids = {(await site.run(task))["result"] for task in ("where", "where_plainly")}

    assert len(pids) == 1
    assert os.getpid() not in pids


@both_loops
def test_child_processes_work_under_both_event_loops(
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


async def test_a_large_result_is_checked_in_several_turns(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def watch(text: bytes, what: str = "it") -> Any:
        read.append(len(text))
        return decode_strictly(text, what)

    monkeypatch.setattr("schedo.core.value_limits.decode_strictly", watch)
    job = await site.submit("echo", text="x" * 1_000_000)

    assert (await site.end(job))["state"] == "completed"
    assert max(read, default=0) <= PIECE_BYTES


async def test_a_large_result_counts_though_its_process_dies_before_it_is_checked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(text: bytes) -> CheckedJson:
        if text == b"3":
            await asyncio.Event().wait()
        return CheckedJson(text)

    monkeypatch.setattr("schedo.worker.process.supervisor.PIECE_BYTES", 0)
    monkeypatch.setattr("schedo.worker.process.supervisor.check_json", check)
    dying = {"mark": str(tmp_path / "mark"), "how": "exit"}
    fine, died = await site.submit_together(("add", {"a": 1, "b": 2}), ("die_once", dying))

    record = await site.end(fine)
    assert (record["state"], record["attempt"], record["losses"]) == ("completed", 1, 0)
    assert (await site.end(died))["losses"] == 1


async def test_a_child_gets_no_setting_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDO_TOKEN", "secret")

    async with serving(tmp_path) as site:
        assert (await site.run("settings"))["result"] == []


async def test_a_schedule_declared_in_the_code_is_put_when_the_server_starts(site: Site) -> None:
    schedule = await site.engine.get_schedule("report")

    assert schedule.spec.rule.cron == "0 9 * * MON-FRI"
    assert schedule.spec.rule.tz == "Europe/Paris"
    assert schedule.spec.job.task == "report"


async def test_a_broadcast_of_a_handler_runs_in_every_place(site: Site) -> None:
    assert (await site.run("add_everywhere", a=2, b=3))["result"] == [5]


@pytest.mark.parametrize("task", ["add_elsewhere", "add_elsewhere_plainly", "add_synchronously"])
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


async def test_any_exception_of_a_handler_fails_its_attempt_and_its_process_stays(
    site: Site,
) -> None:
    before = (await site.run("where"))["result"]
    tasks = {"raise_kind": True, "raise_kind_plainly": False}

    types = {
        (kind, is_async): (await site.run(task, options=ONCE, kind=kind))["error"]["type"]
        for kind in KINDS
        for task, is_async in tasks.items()
    }

    assert types == {(kind, is_async): shown(kind, is_async=is_async) for kind, is_async in types}
    assert (await site.run("where"))["result"] == before


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", "the process exited with code 7"),
        ("crash", "the process was killed by SIGSEGV"),
        ("garbage", "it was killed because it broke the protocol"),
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


async def test_the_process_that_replaces_another_has_its_place(site: Site, tmp_path: Path) -> None:
    [before] = site.engine.sessions.list()
    place = Condition(PLACE_LABEL, "=", (before.labels[PLACE_LABEL],))
    await site.submit("die_once", mark=str(tmp_path / "mark"), how="exit")

    record = await site.run("where", options=Options(requirements=Requirements((place,))))

    [after] = [each for each in site.engine.sessions.list() if not each.isolated]
    assert record["result"] == int(after.name.removeprefix("process-"))
    assert after.name != before.name


async def test_the_death_of_a_process_loses_only_its_own_attempts(
    tmp_path: Path, pipe: Path
) -> None:
    async with serving(tmp_path, processes=2, slots=1) as site:
        waiting = await site.submit("wait_for", pipe=str(pipe))
        dying = await site.run("die_once", mark=str(tmp_path / "mark"), how="exit")
        await write_to(pipe, "fine")
        waited = await site.end(waiting)

    assert (dying["losses"], waited["losses"]) == (1, 0)
    assert (waited["result"], waited["attempt"]) == ("fine", 1)


async def test_a_job_that_kills_its_process_counts_no_loss_for_its_neighbours(
    tmp_path: Path, pipe: Path
) -> None:
    async with serving(tmp_path, processes=2, slots=2) as site:
        other = tmp_path / "other"
        os.mkfifo(other)
        neighbours = [await site.submit("wait_for", pipe=str(way)) for way in (pipe, other)]
        culprit = await site.run("die_always", options=Options(retry=Retry()))
        for way in (pipe, other):
            await write_to(way, "fine")
        ended = [await site.end(job) for job in neighbours]

    assert (culprit["state"], culprit["losses"]) == ("failed", 3)
    assert [(job["result"], job["losses"]) for job in ended] == [("fine", 0), ("fine", 0)]


async def test_leases_that_a_dead_process_had_not_started_count_no_loss(
    site: Site, pipe: Path
) -> None:
    pid = (await site.run("where"))["result"]
    blocked = await site.submit("block", pipe=str(pipe), options=Options(at_most_once=True))
    async with asyncio.timeout(LONG_S):
        writer = await asyncio.to_thread(pipe.open, "w")  # the handler has opened its end, too
    other = await site.submit("add", a=1, b=1)

    os.kill(pid, signal.SIGKILL)

    assert (await site.end(other))["losses"] == 0
    assert (await site.end(blocked))["losses"] == 1
    writer.close()


async def test_leases_sent_together_with_a_job_that_kills_its_process_are_released(
    site: Site, tmp_path: Path
) -> None:
    dying = {"mark": str(tmp_path / "mark"), "how": "exit"}
    add = ("add", {"a": 1, "b": 2})

    died, *others = await site.submit_together(("die_once", dying), add, add)

    assert (await site.end(died))["losses"] == 1
    for job in others:
        assert (await site.end(job))["losses"] == 0
        attempts = await site.engine.store.list_attempts(parse_id(job))
        assert [attempt.outcome for attempt in attempts] == ["released"]


async def test_a_result_sent_just_before_the_process_died_counts(
    site: Site, tmp_path: Path
) -> None:
    dying = {"mark": str(tmp_path / "mark"), "how": "exit"}

    fine, died = await site.submit_together(("add", {"a": 1, "b": 2}), ("die_once", dying))

    record = await site.end(fine)
    assert (record["state"], record["attempt"], record["losses"]) == ("completed", 1, 0)
    assert (await site.end(died))["losses"] == 1


# Blocking.


async def test_a_result_arrives_while_the_next_handler_blocks(site: Site, pipe: Path) -> None:
    fine, blocked = await site.submit_together(
        ("add", {"a": 1, "b": 2}), ("block", {"pipe": str(pipe)})
    )

    assert (await site.end(fine))["result"] == 3
    await write_to(pipe, "unblocked")
    assert (await site.end(blocked))["result"] == "unblocked"


async def test_a_blocked_process_releases_leases_that_it_has_not_started(
    hasty: Site, pipe: Path
) -> None:
    blocked = await hasty.submit("block", pipe=str(pipe))
    others = [await hasty.submit("add", a=n, b=1) for n in range(3)]

    results = [(await hasty.end(job))["result"] for job in others]
    await write_to(pipe, "unblocked")
    record = await hasty.end(blocked)

    assert results == [1, 2, 3]
    assert (record["result"], record["attempt"], record["losses"]) == ("unblocked", 1, 0)


async def test_jobs_released_by_a_blocked_process_run_once(
    hasty: Site, pipe: Path, tmp_path: Path
) -> None:
    blocked = await hasty.submit("block", pipe=str(pipe))
    other = await hasty.submit("add", a=1, b=1)
    await hasty.end(other)
    await write_to(pipe, "")
    await hasty.end(blocked)
    await hasty.children.stop(LONG_S)  # the blocked process has had its say, too

    attempts = await hasty.engine.store.list_attempts(parse_id(other))

    assert [attempt.outcome for attempt in attempts] == ["released"]


async def test_a_blocked_handler_that_times_out_is_killed(hasty: Site, pipe: Path) -> None:
    options = Options(retry=Retry(max_attempts=1), timeout_us=100_000)

    record = await hasty.run("block", pipe=str(pipe), options=options)

    assert (record["state"], record["error"]["type"]) == ("failed", "timeout")
    assert (await hasty.run("add", a=1, b=2))["result"] == 3


async def test_the_process_of_a_handler_that_ignores_its_stop_is_killed(
    site: Site, pipe: Path
) -> None:
    before = (await site.run("where"))["result"]
    job = await site.submit("stubborn", pipe=str(pipe))
    await read_from(pipe)

    await site.backend.cancel(job)

    assert (await site.end(job))["state"] == "cancelled"
    assert await asyncio.to_thread(wait_gone, before, LONG_S)
    assert (await site.run("where"))["result"] != before


async def test_a_process_is_replaced_only_after_its_other_attempts_have_ended(
    site: Site, pipe: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "other")
    waiting = await site.submit("wait_for", pipe=str(tmp_path / "other"))
    job = await site.submit("stubborn", pipe=str(pipe))
    await read_from(pipe)
    await site.backend.cancel(job)
    await site.end(job)
    await write_to(tmp_path / "other", "fine")

    record = await site.end(waiting)

    assert (record["result"], record["attempt"], record["losses"]) == ("fine", 1, 0)


async def test_a_plain_function_can_see_that_its_job_was_cancelled(site: Site, pipe: Path) -> None:
    job = await site.submit("watchful", pipe=str(pipe))
    await read_from(pipe)

    await site.backend.cancel(job)

    assert await read_from(pipe) == "stopping"
    assert (await site.end(job))["state"] == "cancelled"


# Stopping.


async def test_a_stop_lets_running_attempts_end(tmp_path: Path, pipe: Path) -> None:
    async with serving(tmp_path) as site:
        pid = (await site.run("where"))["result"]
        job = await site.submit("wait_for", pipe=str(pipe))
        stopping = asyncio.create_task(site.children.stop(LONG_S))
        await write_to(pipe, "in time")
        await stopping

        assert (await site.end(job))["result"] == "in time"
        assert wait_gone(pid, 0)


async def test_a_stop_releases_attempts_that_do_not_end_in_time(tmp_path: Path, pipe: Path) -> None:
    async with serving(tmp_path) as site:
        job = await site.submit("stubborn", pipe=str(pipe))
        await read_from(pipe)

        await site.children.stop(0)
        record = await site.backend.get(job)

    assert (record["state"], record["attempt"], record["losses"]) == ("queued", 1, 0)


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (0, "the process exited with code 0"),
        (-9, "the process was killed by SIGKILL"),
        (-34, "the process was killed by SIGRTMIN"),
        (-35, "the process was killed by signal 35"),
    ],
)
def test_the_exit_status_of_a_process_is_described_in_words(status: int, wanted: str) -> None:
    assert describe_exit(status) == wanted
