"""Stopping commands: with grace time, then by force, with all their descendants."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from schedo.core.leases import AttemptResult, Blame, Completed, Lost, Stopped, StopReason
from schedo.tasks.runner import AttemptContext
from schedo.tasks.shell.task import ShellRunner
from tests.worker.calls import both_loops, capture_of, make_context, text_of, wait_gone

DIED = "the spawner, the process that starts commands, has died"
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A named pipe through which a command reports that it has reached a point."""
    os.mkfifo(tmp_path / "ready")
    return tmp_path / "ready"


async def stop_when_ready(
    context: AttemptContext, ready: Path, runner: ShellRunner
) -> tuple[AttemptResult, str]:
    """Run the call, stop it once it has written to the pipe; return what it wrote there too."""
    running = asyncio.create_task(runner(context))
    try:
        async with asyncio.timeout(30):
            said = await asyncio.to_thread(ready.read_text)
            context.stop.set(StopReason.CANCEL)
            return await running, said
    finally:
        runner.close()


@both_loops
def test_a_stop_lets_the_command_clean_up(make_loop: MakeLoop, ready: Path) -> None:
    line = f"trap 'echo bye; exit 0' TERM; echo up > {ready}; while :; do sleep 0.01; done"
    context = make_context({"command": line})

    with asyncio.Runner(loop_factory=make_loop) as runner:
        report, _ = runner.run(stop_when_ready(context, ready, ShellRunner()))

    assert report.outcome == Stopped()
    assert text_of(report) == "bye\n"


async def test_a_grandchild_has_the_grace_time_after_its_parent_has_gone(ready: Path) -> None:
    cleanup = (
        f"trap 'sleep 0.2; echo clean; exit' TERM; echo up > {ready}; while :; do sleep 0.01; done"
    )
    context = make_context({"command": f"({cleanup}) & wait"})

    report, _ = await stop_when_ready(context, ready, ShellRunner())

    assert text_of(report) == "clean\n"


@both_loops
def test_a_command_that_ignores_the_stop_is_killed_with_its_descendants(
    make_loop: MakeLoop, ready: Path
) -> None:
    line = (
        "trap '' TERM; sleep 60 & first=$!; setsid sleep 60 & second=$!;"
        "(setsid sh -c 'sleep 60 & echo $!' &) > escaped; while [ ! -s escaped ]; do :; done;"
        f"echo $$ $first $second $(cat escaped) > {ready}; while :; do sleep 1; done"
    )
    context = make_context({"command": line, "grace": 0.1, "cwd": str(ready.parent)})

    with asyncio.Runner(loop_factory=make_loop) as runner:
        report, said = runner.run(stop_when_ready(context, ready, ShellRunner()))

    pids = [int(word) for word in said.split()]
    assert report.outcome == Stopped()
    assert len(pids) == 4
    assert [wait_gone(pid) for pid in pids] == [True] * 4


async def test_a_command_that_floods_its_output_can_be_stopped(ready: Path) -> None:
    flood = f"yes | (head -c 200000; echo up > {ready}; cat)"
    context = make_context({"command": f"trap '' TERM; {flood}", "grace": 0.05})

    report, _ = await stop_when_ready(context, ready, ShellRunner())

    assert report.outcome == Stopped()
    assert capture_of(report, "stdout").head.startswith(b"y\ny\n")


async def test_a_process_that_suspended_itself_can_be_stopped(ready: Path) -> None:
    context = make_context({"command": f"echo up > {ready}; kill -STOP $$", "grace": "10s"})

    report, _ = await stop_when_ready(context, ready, ShellRunner())

    assert report.outcome == Stopped()


async def test_a_stop_before_the_start_ends_the_command() -> None:
    context = make_context({"command": "sleep 60"})
    context.stop.set(StopReason.TIMEOUT)

    runner = ShellRunner()

    async with asyncio.timeout(10):
        report = await runner(context)

    assert report.outcome == Stopped()
    runner.close()


async def test_a_stop_after_the_end_changes_nothing() -> None:
    context = make_context({"command": "true"})

    runner = ShellRunner()

    report = await runner(context)
    context.stop.set(StopReason.CANCEL)

    assert isinstance(report.outcome, Completed)
    runner.close()


@pytest.mark.parametrize("is_suspect", [False, True])
async def test_a_runner_that_is_cancelled_leaves_no_process(ready: Path, is_suspect: bool) -> None:
    context = make_context({"command": f"setsid sleep 60 & echo $$ $! > {ready}; sleep 60"})
    context = replace(context, lease=replace(context.lease, is_suspect=is_suspect))
    runner = ShellRunner()
    running = asyncio.create_task(runner(context))
    pids = map(int, (await asyncio.to_thread(ready.read_text)).split())

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert [await asyncio.to_thread(wait_gone, pid) for pid in pids] == [True, True]
    runner.close()


async def test_a_dead_spawner_loses_the_attempt_and_its_processes_are_killed(
    ready: Path,
) -> None:
    line = f"setsid sleep 60 & echo $$ $PPID $! > {ready}; sleep 60"
    runner = ShellRunner()
    running = asyncio.create_task(runner(make_context({"command": line})))
    said = await asyncio.to_thread(ready.read_text)
    leader, spawner, escaped = map(int, said.split())

    os.kill(spawner, signal.SIGKILL)
    report = await running

    assert report.outcome == Lost(DIED)
    assert [wait_gone(pid) for pid in (leader, escaped)] == [True, True]
    assert isinstance((await runner(make_context({"command": "true"}))).outcome, Completed)
    runner.close()


async def test_a_suspect_is_started_by_a_process_of_its_own(tmp_path: Path) -> None:
    runner = ShellRunner()

    async def begin(name: str, *, is_suspect: bool) -> tuple[asyncio.Task[AttemptResult], int]:
        """Return the attempt and the process that has started its command."""
        pipe = tmp_path / name
        os.mkfifo(pipe)
        context = make_context({"command": f"echo $PPID > {pipe}; exec sleep 60"})
        context = replace(context, lease=replace(context.lease, is_suspect=is_suspect))
        attempt = asyncio.create_task(runner(context))
        return attempt, int(await asyncio.to_thread(pipe.read_text))

    first, shared = await begin("first", is_suspect=False)
    second, same = await begin("second", is_suspect=False)
    suspect, own = await begin("suspect", is_suspect=True)
    assert same == shared != own

    os.kill(own, signal.SIGKILL)
    assert (await suspect).outcome == Lost(DIED, Blame.SOLE)
    assert not first.done()
    os.kill(shared, signal.SIGKILL)
    outcomes = [(await each).outcome for each in (first, second)]
    assert outcomes == [Lost(DIED, Blame.SHARED)] * 2
    assert runner.not_ready_reasons() == []
    runner.close()
