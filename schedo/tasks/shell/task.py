"""The shell task: a command line for /bin/sh, or an argv list without a shell.

The command gets an environment made from an allow-list, never the server's own. The job ends when
the command's first process has exited: its background processes live on, as under cron, and cannot
keep the job running. A stop is SIGTERM to the group, the grace time, then SIGKILL to the group and
to every descendant that has the attempt's mark in its environment. A descendant that has left the
group and wiped its environment escapes; only a cgroup could hold it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import secrets
import signal
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from schedo.core import limits
from schedo.core.ids import render_id
from schedo.core.leases import (
    AttemptResult,
    CapturedOutput,
    Completed,
    Failed,
    Lease,
    Lost,
    Outcome,
    Stopped,
)
from schedo.core.model import Failure
from schedo.core.progress import ProgressUpdate
from schedo.errors import Invalid
from schedo.protocol.times import parse_duration, render_instant
from schedo.tasks.built_in import RunnerSettings
from schedo.tasks.payloads import refuse_payload
from schedo.tasks.runner import AttemptContext, BuiltInRunner
from schedo.tasks.shell.failures import explain_start, name_signal
from schedo.tasks.shell.orphans import MARK, Leader, Orphans, kill_left
from schedo.tasks.shell.output import OutputFile, PipeReader, Stream
from schedo.tasks.shell.payload import ShellPayload, check_shell_payload
from schedo.tasks.shell.spawner import Command, Running, Spawner, SpawnerDied
from schedo.tasks.shortage import Shortage, is_shortage
from schedo.tasks.threads import call_in_some_thread

_KILL_WAIT_S = 5.0  # after SIGKILL; longer only in an uninterruptible system call
_LAST_LINE_CHARACTERS_MAX = 200
# What colours a terminal, moves its cursor (CSI), or sets its title (OSC).
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\|\Z))")
_PROGRESS_S = 1.0  # between two progress reports with a running command's output
_REPORTED_BYTES_MAX = 16_384  # of each stream

# The variables that a command inherits. The rest of the server's environment may hold secrets.
_INHERITED = re.compile(r"(PATH|HOME|LANG|LC_[A-Z]+|TZ|USER|LOGNAME|SHELL|TMPDIR)\Z")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

log = logging.getLogger("schedo.worker")


check_payload = check_shell_payload


def make_runner(settings: RunnerSettings) -> ShellRunner:
    """Return the runner of one worker."""
    return ShellRunner(settings.output_dir, settings.orphans)


class ShellRunner(BuiltInRunner):
    """Runs shell jobs; writes their output to output_dir and records them in orphans.

    A poison suspect gets a spawner of its own: if that one dies, too, the suspect is the cause.
    """

    def __init__(
        self,
        output_dir: Path | None = None,
        orphans: Orphans | None = None,
    ) -> None:
        self._output_dir = output_dir
        self._orphans = orphans
        self._spawner = Spawner()
        self._isolated: set[Spawner] = set()
        self._shortage = Shortage("no command can be started")
        self._env = {k: v for k, v in os.environ.items() if _INHERITED.match(k)}
        self._env.setdefault("PATH", _PATH)
        if output_dir is not None:
            output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Start the spawner; if that fails, the first command tries again."""
        with contextlib.suppress(OSError):
            self._spawner.prepare()

    def not_ready_reasons(self) -> list[str]:
        """Return why commands would not start in time, in sentences."""
        reasons = [each.not_ready_reasons() for each in (self._spawner, *self._isolated)]
        return list(dict.fromkeys(chain(*reasons, self._shortage.not_ready_reasons())))

    def close(self) -> None:
        """End the spawners."""
        for spawner in (self._spawner, *self._isolated):
            spawner.close()

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        """Run the command and return its result, with its output."""
        try:
            payload = check_shell_payload(context.lease.payload or b"null")
        except Invalid as error:
            return AttemptResult(context.lease.key, refuse_payload(error))
        try:
            attempt = _Attempt(context, payload, self._env, self._orphans, self._output_dir)
        except OSError as error:
            return AttemptResult(context.lease.key, await self._blame_start(error, context, None))
        try:
            with self._spawner_for(context.lease) as spawner:
                outcome = await attempt.run(spawner, self._shortage.end)
            return AttemptResult(context.lease.key, outcome, attempt.output())
        except NotStarted as error:
            cause = error.cause
        finally:
            attempt.close()
        return AttemptResult(context.lease.key, await self._blame_start(cause, context, payload))

    async def _blame_start(
        self, error: Exception, context: AttemptContext, payload: ShellPayload | None
    ) -> Outcome:
        """Return the outcome of an attempt whose command could not start."""
        if isinstance(error, OSError) and is_shortage(error):
            return await self._shortage.wait(error, context.stop)
        if payload is None:
            return Failed(Failure("spawn-failed", f"a pipe could not be created: {error}"))
        return Failed(explain_start(error, payload))

    @contextlib.contextmanager
    def _spawner_for(self, lease: Lease) -> Iterator[Spawner]:
        if not lease.is_suspect:
            yield self._spawner
            return
        spawner = Spawner()
        self._isolated.add(spawner)
        try:
            yield spawner
        finally:
            self._isolated.remove(spawner)
            spawner.close()


class NotStarted(Exception):
    """The command could not start; `cause` is the error of the system."""

    def __init__(self, cause: OSError | ValueError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Attempt:
    """One command, from its start to its end."""

    def __init__(
        self,
        context: AttemptContext,
        payload: ShellPayload,
        env: Mapping[str, str],
        orphans: Orphans | None,
        output_dir: Path | None,
    ) -> None:
        self._context = context
        self._payload = payload
        self._orphans = orphans
        self._mark = secrets.token_hex(8)
        self._env = {**env, **payload.env, **_attempt_variables(context.lease), MARK: self._mark}
        self._leader: Leader | None = None
        self._running: Running | None = None
        self._progress_timer: asyncio.TimerHandle | None = None
        self._reported_bytes = 0
        self._pipes: list[PipeReader] = []
        try:
            for stream in ("stdout", "stderr"):
                self._pipes.append(
                    PipeReader(stream, _find_file(output_dir, context.lease, stream))
                )
        except OSError:
            self.close()
            raise

    async def run(self, spawner: Spawner, on_start: Callable[[], None]) -> Outcome:
        """Start the command and return its outcome, or raise NotStarted."""
        try:
            running = self._start(spawner, on_start)
        except (OSError, ValueError) as error:
            raise NotStarted(error) from error
        self._progress_timer = asyncio.get_running_loop().call_later(
            _PROGRESS_S, self._report_output
        )
        await self._until_ended_or_stopped(running)
        self._progress_timer.cancel()
        if not running.ended.done():
            await self._stop(running)
            self._release(running)
            await self._close_files()
            return Stopped()
        failure = running.ended.exception()
        if isinstance(failure, SpawnerDied):
            await self._kill_left()
        self._release(running)
        notes = await self._close_files()
        if isinstance(failure, SpawnerDied):
            return Lost(str(failure), failure.blame)
        if isinstance(failure, (OSError, ValueError)):
            raise NotStarted(failure)
        return self._outcome_of(running.ended.result(), notes)

    def _report_output(self) -> None:
        """Report the ends of the streams as progress, once a second if they have grown."""
        written = sum(pipe.kept.total_bytes for pipe in self._pipes)
        if written > self._reported_bytes:
            self._reported_bytes = written
            ends = (pipe.kept.read_end(_REPORTED_BYTES_MAX) for pipe in self._pipes)
            (stdout, stdout_bytes), (stderr, stderr_bytes) = ends
            update = ProgressUpdate(
                stdout=stdout or None,
                stderr=stderr or None,
                stdout_bytes=stdout_bytes or None,
                stderr_bytes=stderr_bytes or None,
            )
            self._context.report_progress(self._context.lease.key, update)
        loop = asyncio.get_running_loop()
        self._progress_timer = loop.call_later(_PROGRESS_S, self._report_output)

    def output(self) -> tuple[CapturedOutput, ...]:
        """Return the kept output of each stream that is not empty."""
        return tuple(pipe.capture() for pipe in self._pipes if pipe.kept.total_bytes)

    def close(self) -> None:
        """Release all resources and kill what still runs, however run() ended."""
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._forget()
        if self._running is not None:
            self._running.abandon()
            with contextlib.suppress(RuntimeError):  # the loop's executor is already shut down
                self._kill_left()
        for pipe in self._pipes:
            pipe.close()
            if pipe.file is not None:
                pipe.file.abandon()

    def _start(self, spawner: Spawner, on_start: Callable[[], None]) -> Running:
        payload = self._payload
        argv = payload.command
        if isinstance(argv, str):
            # The space keeps the shell from parsing a line that begins with - or + as an option.
            argv = [payload.shell, "-c", f" {argv}" if argv[0] in "-+" else argv]
        stdin = None if payload.stdin is None else payload.stdin.encode()
        command = Command(argv, self._env, payload.cwd, stdin)
        stdout, stderr = (pipe.write_end for pipe in self._pipes)
        if self._orphans is not None:  # before the start, so that a crash cannot miss the command
            self._orphans.announce(self._mark)
        self._context.confirm()

        def record(pid: int, ticks: int | None) -> None:
            on_start()
            self._record(pid, ticks)

        running = self._running = spawner.start(command, stdout, stderr, record)
        for pipe in self._pipes:
            pipe.start()
        return running

    def _record(self, pid: int, ticks: int | None) -> None:
        if ticks is not None:
            self._leader = Leader(pid, ticks)
            if self._orphans is not None:
                self._orphans.record(self._mark, self._leader)

    async def _until_ended_or_stopped(self, running: Running) -> None:
        turn = running.ended.get_loop().create_future()

        def wake(_: object = None) -> None:
            if not turn.done():
                turn.set_result(None)

        running.ended.add_done_callback(wake)
        self._context.stop.listener = wake
        if self._context.stop.reason is None:
            await turn

    async def _stop(self, running: Running) -> None:
        """End the command and its descendants; all that hold a pipe have the grace time."""
        running.signal_group(signal.SIGTERM)
        running.signal_group(signal.SIGCONT)  # a stopped process handles SIGTERM only after it
        grace_s = parse_duration(self._payload.grace) / limits.SECOND
        holders: list[asyncio.Future[Any]] = [running.ended, *(pipe.ended for pipe in self._pipes)]
        await asyncio.wait(holders, timeout=grace_s)
        running.signal_group(signal.SIGKILL)
        await asyncio.wait((running.ended,), timeout=_KILL_WAIT_S)
        await self._kill_left()

    def _kill_left(self) -> asyncio.Future[set[int]]:
        """Kill the descendants that have left the group or lost their spawner; in a thread."""
        return call_in_some_thread(functools.partial(kill_left, {self._mark: self._leader}))

    def _release(self, running: Running) -> None:
        """Read the rest of the pipes and release the process, unless it has survived SIGKILL."""
        for pipe in self._pipes:
            pipe.drain()
        if not running.ended.done():
            log.warning(
                "process %s of job %s has survived SIGKILL for %g s; it may hang in a system call",
                running.pid,
                self._job_text,
                _KILL_WAIT_S,
            )
            return
        self._forget()
        self._running = None
        running.release()

    def _forget(self) -> None:
        if self._orphans is not None:
            self._orphans.forget(self._mark)

    async def _close_files(self) -> list[str]:
        files = [pipe.file for pipe in self._pipes if pipe.file is not None]
        for file in files:
            await file.close()
        notes = [file.note for file in files if file.note is not None]
        for note in notes:
            log.warning("job %s: output file %s", self._job_text, note)
        return notes

    def _outcome_of(self, status: int, notes: list[str]) -> Outcome:
        if status in self._payload.success_codes:
            result: dict[str, Any] = {"exit_code": status}
            if notes:
                result["notes"] = notes
            return Completed(msgspec.json.encode(result))
        if status < 0:
            name = name_signal(-status)
            return Failed(Failure("signal", f"the command was killed by {name}", signal=name))
        last_line = _find_last_line(self._pipes[1])
        message = f"the command ended with exit code {status}" + (
            f": {last_line}" if last_line else ""
        )
        return Failed(Failure("exit-code", message, exit_code=status))

    @property
    def _job_text(self) -> str:
        return render_id(self._context.lease.key.job_id)


def _attempt_variables(lease: Lease) -> dict[str, str]:
    """Return the environment variables that describe the attempt to its command."""
    variables = {
        "SCHEDO_JOB_ID": render_id(lease.key.job_id),
        "SCHEDO_ATTEMPT": str(lease.key.attempt),
        "SCHEDO_EPOCH": str(lease.key.epoch),
        "SCHEDO_FAILURES": str(lease.failures),
        "SCHEDO_MAX_ATTEMPTS": str(lease.max_attempts),
        "SCHEDO_QUEUE": lease.queue,
        "SCHEDO_SCHEDULED_FOR": render_instant(lease.scheduled_for),
    }
    if lease.options.schedule is not None:
        variables["SCHEDO_SCHEDULE"] = lease.options.schedule
    if lease.options.traceparent is not None:
        variables["TRACEPARENT"] = lease.options.traceparent
        if lease.options.tracestate is not None:
            variables["TRACESTATE"] = lease.options.tracestate
    return variables


def _find_file(output_dir: Path | None, lease: Lease, stream: Stream) -> OutputFile | None:
    if output_dir is None:
        return None
    job_id, attempt, epoch = lease.key
    name = f"{render_id(job_id)}.{attempt}"
    # After a crash the same attempt number can occur again, in a later epoch.
    taken = output_dir / f"{name}.{epoch}.{stream}"
    return OutputFile(output_dir / f"{name}.{stream}", taken)


def _find_last_line(pipe: PipeReader) -> str:
    """Return the last line of a stream as plain text, cut to fit a message."""
    text, _ = pipe.kept.read_end(1_024)
    plain = _ESCAPE_SEQUENCE.sub("", text)
    line = plain.rstrip().rpartition("\n")[2]
    return "".join(c for c in line if c.isprintable())[:_LAST_LINE_CHARACTERS_MAX]
