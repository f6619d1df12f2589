"""The shell task with real processes: their environment, their ends and their remains."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schedo.core.leases import AttemptResult, Failed, Released
from schedo.core.model import LeaseKey, Options
from schedo.core.progress import ProgressUpdate
from schedo.protocol import reading
from schedo.tasks.runner import TakenBack
from schedo.tasks.shell.spawner import Running
from schedo.tasks.shell.task import ShellRunner
from tests.worker.calls import (
    JOB,
    KEY,
    both_loops,
    capture_of,
    failure_of,
    is_running,
    make_context,
    result_of,
    text_of,
)

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def run(
    payload: Any, runner: ShellRunner | None = None, options: Options | None = None
) -> AttemptResult:
    call = make_context(payload) if options is None else make_context(payload, options=options)
    used = runner or ShellRunner()
    try:
        async with asyncio.timeout(30):
            return await used(call)
    finally:
        used.close()


@both_loops
def test_a_command_line_runs_in_a_shell(make_loop: MakeLoop) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        report = runner.run(run({"command": "echo out | tr a-z A-Z; echo err >&2"}))

    assert report.key == KEY
    assert result_of(report) == {"exit_code": 0}
    assert text_of(report) == "OUT\n"
    assert text_of(report, "stderr") == "err\n"


async def test_a_list_runs_without_a_shell() -> None:
    report = await run({"command": ["printf", "%s|", "$HOME", "a b", "; rm -rf x", "`id`"]})

    assert text_of(report) == "$HOME|a b|; rm -rf x|`id`|"


async def test_a_line_that_begins_with_a_dash_is_no_option() -> None:
    report = await run({"command": "-n x"})

    assert failure_of(report).exit_code == 127


async def test_another_shell_can_be_named() -> None:
    report = await run({"command": "echo ${BASH_VERSION:+bash}", "shell": "/bin/bash"})

    assert text_of(report) == "bash\n"


async def test_a_command_whose_job_another_server_may_have_by_then_does_not_start(
    tmp_path: Path,
) -> None:
    context = make_context({"command": f"touch {tmp_path}/started"})
    context.may_start = lambda: False
    runner = ShellRunner()

    with pytest.raises(TakenBack):
        await runner(context)
    runner.close()

    assert not os.listdir(tmp_path)


async def test_a_silent_command_has_no_output() -> None:
    report = await run({"command": "true"})

    assert report.output == ()


@pytest.mark.parametrize(
    ("payload", "kind", "message"),
    [
        ({"command": "exit 3"}, "exit-code", "the command ended with exit code 3"),
        (
            {"command": r"echo no >&2; printf 'why\33[1m: \33]0;title\7x\33[0m\n' >&2; exit 1"},
            "exit-code",
            "the command ended with exit code 1: why: x",
        ),
        ({"command": "kill -SEGV $$"}, "signal", "the command was killed by SIGSEGV"),
        ({"command": ["kill-no-one"]}, "not-found", "'kill-no-one' was not found"),
        ({"command": "a", "shell": "/bin/none"}, "not-found", "'/bin/none' was not found"),
        ({"command": ["/etc/passwd"]}, "not-executable", "cannot be executed: Permission denied"),
        ({"command": ["/usr"]}, "not-executable", "cannot be executed: Permission denied"),
        ({"command": ["/etc/passwd/x"]}, "not-executable", "Not a directory"),
        ({"command": "a", "cwd": "/none"}, "bad-cwd", "'/none' cannot be entered: No such file"),
        ({"command": "a", "cwd": "/etc/passwd"}, "bad-cwd", "cannot be entered: Not a directory"),
    ],
)
async def test_each_kind_of_failure_has_its_own_error_code(
    payload: Any, kind: str, message: str
) -> None:
    report = await run(payload)

    failure = failure_of(report)
    assert failure.type == kind
    assert message in failure.message


async def test_the_exit_code_and_the_signal_are_in_the_result() -> None:
    assert failure_of(await run({"command": "exit 3"})).exit_code == 3
    assert failure_of(await run({"command": "kill -KILL $$"})).signal == "SIGKILL"


async def test_a_real_time_signal_has_a_number() -> None:
    assert failure_of(await run({"command": "kill -35 $$"})).signal == "signal 35"


async def test_too_many_arguments_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIELD_BYTES_MAX", 8_388_608)
    failure = failure_of(await run({"command": ["echo", *["x" * 130_000] * 40]}))

    assert failure.type == "spawn-failed"
    assert failure.message == "'echo' could not be started: Argument list too long"


async def test_a_file_that_is_no_program_is_not_executable(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\0\0\0\0")
    script.chmod(0o700)

    assert failure_of(await run({"command": [str(script)]})).type == "not-executable"


async def test_a_payload_can_count_other_exit_codes_as_success() -> None:
    payload = {"command": "exit 3", "success_codes": [0, 3]}

    assert result_of(await run(payload)) == {"exit_code": 3}
    assert failure_of(await run({"command": "true", "success_codes": [3]})).exit_code == 0


@pytest.fixture
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedo.tasks.shortage.PAUSE_S", 0.01)


@pytest.mark.usefixtures("_short_pauses")
async def test_an_attempt_without_a_free_descriptor_is_released() -> None:
    runner = ShellRunner()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
    plugs = []
    try:
        while True:
            plugs.append(os.dup(0))
    except OSError:
        report = await runner(make_context({"command": "true"}))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for plug in plugs:
            os.close(plug)

    assert report.outcome == Released()
    assert runner.not_ready_reasons() == ["no command can be started: Too many open files"]
    assert result_of(await runner(make_context({"command": "true"}))) == {"exit_code": 0}
    assert runner.not_ready_reasons() == []
    runner.close()


@pytest.mark.usefixtures("_short_pauses")
async def test_an_attempt_is_released_when_the_spawner_has_no_descriptors() -> None:
    runner = ShellRunner()
    spawner = int(text_of(await runner(make_context({"command": "echo $PPID"}))))
    limits = resource.prlimit(spawner, resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir(f"/proc/{spawner}/fd")))
    free = [number for number in range(len(used) + 3) if number not in used]
    payload = {"command": "cat", "stdin": "must not be lost"}

    resource.prlimit(spawner, resource.RLIMIT_NOFILE, (free[2], limits[1]))  # room for two of 3
    assert (await runner(make_context(payload))).outcome == Released()

    resource.prlimit(spawner, resource.RLIMIT_NOFILE, limits)
    assert text_of(await runner(make_context(payload))) == "must not be lost"
    runner.close()


@pytest.mark.usefixtures("_short_pauses")
@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM])
async def test_an_attempt_is_released_when_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Refused(Running):
        """A command for which the spawner has no process."""

        def __init__(self, *_: object) -> None:
            self.ended = asyncio.get_running_loop().create_future()
            self.on_refused(code, os.strerror(code), None)

        def abandon(self) -> None:
            """There is nothing to end."""

        def release(self) -> None:
            """There is no pid to release."""

    runner = ShellRunner()
    monkeypatch.setattr("schedo.tasks.shell.spawner.Spawner.start", Refused)
    outcomes = [(await runner(make_context({"command": "true"}))).outcome for _ in range(3)]

    assert outcomes == [Released()] * 3
    runner.close()


async def test_a_bad_payload_fails_the_attempt_without_a_retry() -> None:
    report = await run({"comand": "true"})

    assert failure_of(report).type == "bad-payload"
    assert isinstance(report.outcome, Failed)
    assert not report.outcome.retryable


async def test_a_command_does_not_get_the_secrets_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SCHEDO_TOKEN", "planted")
    monkeypatch.setenv("DATABASE_URL", "planted")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/planted")
    monkeypatch.setenv("LC_TIME", "C")

    report = await run({"command": ["env"]})

    assert "planted" not in text_of(report)
    assert "LC_TIME=C\n" in text_of(report)


async def test_a_command_gets_its_job_and_attempt_in_variables() -> None:
    options = Options(traceparent=TRACE, tracestate="a=b", schedule="nightly")

    report = await run({"command": ["env"]}, options=options)

    lines = text_of(report).splitlines()
    assert sorted(line for line in lines if line.startswith(("SCHEDO_", "TRACE"))) == [
        "SCHEDO_ATTEMPT=2",
        "SCHEDO_EPOCH=7",
        "SCHEDO_FAILURES=1",
        f"SCHEDO_JOB_ID={JOB}",
        next(line for line in lines if line.startswith("SCHEDO_MARK=")),
        "SCHEDO_MAX_ATTEMPTS=3",
        "SCHEDO_QUEUE=default",
        "SCHEDO_SCHEDULE=nightly",
        "SCHEDO_SCHEDULED_FOR=2026-11-20T11:04:05.000250Z",
        f"TRACEPARENT={TRACE}",
        "TRACESTATE=a=b",
    ]


async def test_a_command_gets_the_variables_of_its_payload() -> None:
    payload = {"command": ["env"], "env": {"A": "b=ä\n", "PATH": "/bin:/usr/bin"}}

    text = text_of(await run(payload))

    assert "A=b=ä\n" in text
    assert "PATH=/bin:/usr/bin\n" in text


async def test_the_stdin_of_a_command_is_that_of_its_payload_or_empty() -> None:
    assert text_of(await run({"command": ["cat"], "stdin": "a\nä"})) == "a\nä"
    assert (await run({"command": ["cat"]})).output == ()


@both_loops
def test_a_background_process_with_the_pipes_does_not_hold_the_job(make_loop: MakeLoop) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        report = runner.run(run({"command": "sleep 60 & echo $!"}))

    left = int(text_of(report))
    assert result_of(report) == {"exit_code": 0}
    assert is_running(left)  # as under cron
    os.kill(left, 9)


async def test_of_endless_output_only_the_first_and_last_bytes_are_in_memory() -> None:
    await run({"command": "head -c 3000000 /dev/zero"})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    report = await run({"command": "echo first; yes | head -c 300000000; echo last"})

    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    capture = capture_of(report, "stdout")
    assert capture.total_bytes == 300_000_011
    assert (len(capture.head), len(capture.tail)) == (524_288, 524_288)
    assert capture.head.startswith(b"first\ny\n")
    assert capture.tail.endswith(b"y\nlast\n")
    assert grown_kib < 16_384


async def test_the_last_bytes_of_output_are_kept() -> None:
    for _ in range(30):
        report = await run({"command": "head -c 60000 /dev/zero; echo end"})
        assert capture_of(report, "stdout").head[-4:] == b"end\n"


async def test_the_whole_output_goes_to_files_named_by_ids(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "output"
    runner = ShellRunner(output_dir=folder)

    report = await run({"command": "head -c 3000000 /dev/zero; echo end"}, runner)

    (file,) = folder.iterdir()
    assert file.name == f"{JOB}.2.stdout"
    assert file.stat().st_size == 3_000_004
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert result_of(report) == {"exit_code": 0}


async def test_a_repeated_attempt_number_gets_another_output_file(tmp_path: Path) -> None:
    runner = ShellRunner(output_dir=tmp_path)
    (tmp_path / f"{JOB}.2.stdout").symlink_to(tmp_path / "elsewhere")

    await run({"command": "echo a; echo b >&2"}, runner)

    assert (tmp_path / f"{JOB}.2.7.stdout").read_text() == "a\n"
    assert (tmp_path / f"{JOB}.2.stderr").read_text() == "b\n"
    assert not (tmp_path / "elsewhere").exists()


async def test_an_output_file_that_fails_does_not_fail_the_job(tmp_path: Path) -> None:
    runner = ShellRunner(output_dir=tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    report = await run({"command": "echo a"}, runner)

    assert text_of(report) == "a\n"
    assert result_of(report) == {
        "exit_code": 0,
        "notes": [f"{JOB}.2.stdout is incomplete: No such file or directory"],
    }


async def test_the_end_of_the_output_is_reported_while_a_command_runs(tmp_path: Path) -> None:
    updates: asyncio.Queue[ProgressUpdate] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def note_update(key: LeaseKey, update: ProgressUpdate) -> None:
        loop.call_soon_threadsafe(updates.put_nowait, update)

    os.mkfifo(tmp_path / "pipe")
    command = f"echo half of it; cat {tmp_path}/pipe"
    call = replace(make_context({"command": command}), report_progress=note_update)
    runner = ShellRunner()
    running = asyncio.create_task(runner(call))

    async with asyncio.timeout(30):
        assert await updates.get() == ProgressUpdate(stdout="half of it\n", stdout_bytes=11)
        await asyncio.to_thread((tmp_path / "pipe").write_text, "the rest")
        report = await running

    assert text_of(report) == "half of it\nthe rest"
    assert updates.empty()
    runner.close()
