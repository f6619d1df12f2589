"""The shell task: a command line for /bin/sh, or an argv list without a shell.

The command gets an environment made from an allow-list, never the server's own. It is over when the
process that was started has exited: what it left in the background lives on, as under cron, and
cannot hold the job open. A stop is SIGTERM to the group, the grace time, SIGKILL to the group, and
to every descendant that still carries the attempt's mark in its environment. A descendant that left
the group and also wiped its environment escapes; only a cgroup would hold it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
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
from schedo.errors import Invalid
from schedo.protocol.times import parse_duration, render_instant
from schedo.tasks.payloads import refuse_payload
from schedo.tasks.progress import Said
from schedo.tasks.runner import AttemptContext
from schedo.tasks.shell.orphans import MARK, Leader, Orphans, kill_left
from schedo.tasks.shell.output import OutputFile, PipeReader, Stream
from schedo.tasks.shell.payload import ShellPayload, check_shell_payload
from schedo.tasks.shell.spawner import Command, Running, Spawner, SpawnerDied
from schedo.tasks.shortage import Shortage, is_shortage

ISOLATED_TASKS = frozenset(
    {"shell"}
)  # the tasks whose suspects can be run beside others, but apart

_KILL_WAIT_S = 5.0  # after SIGKILL; longer only in an uninterruptible system call
_SAID_CHARACTERS_MAX = 200
_TELL_S = 1.0  # between two looks at the output of a command that runs
_TOLD_BYTES_MAX = 4_096  # of each stream

# What a command inherits. The rest of the server's environment may hold secrets.
_INHERITED = re.compile(r"(PATH|HOME|LANG|LC_[A-Z]+|TZ|USER|LOGNAME|SHELL|TMPDIR)\Z")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

log = logging.getLogger("schedo.workers")


class ShellRunner:
    """Runs shell jobs; output_dir gets all they write, orphans hears of all that run.

    A suspect gets a process of its own that starts it: if that dies again, it was the suspect.
    """

    def __init__(
        self,
        output_dir: Path | None = None,
        orphans: Orphans | None = None,
    ) -> None:
        self._output_dir = output_dir
        self._orphans = orphans
        self._commands = Spawner()
        self._apart: set[Spawner] = set()
        self._shortage = Shortage("no command can be started")
        self._env = {k: v for k, v in os.environ.items() if _INHERITED.match(k)}
        self._env.setdefault("PATH", _PATH)
        if output_dir is not None:
            output_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def not_ready_reasons(self) -> list[str]:
        """Return in a sentence why commands would not start in time."""
        reasons = [each.not_ready_reasons() for each in (self._commands, *self._apart)]
        return list(dict.fromkeys(chain(*reasons, self._shortage.not_ready_reasons())))

    def close(self) -> None:
        """End the processes that start commands."""
        for commands in (self._commands, *self._apart):
            commands.close()

    async def __call__(self, call: AttemptContext) -> AttemptResult:
        """Return how the command ended, with what it wrote."""
        try:
            payload = check_shell_payload(call.lease.payload or b"null")
        except Invalid as error:
            return AttemptResult(call.lease.key, refuse_payload(error))
        try:
            attempt = _Attempt(call, payload, self._env, self._orphans, self._output_dir)
        except OSError as error:
            return AttemptResult(call.lease.key, await self._blame_start(error, call, None))
        try:
            with self._find_commands(call.lease) as commands:
                outcome = await attempt.run(commands, self._shortage.end)
            return AttemptResult(call.lease.key, outcome, attempt.output())
        except NotStarted as error:
            wrong = error.cause
        finally:
            attempt.close()
        return AttemptResult(call.lease.key, await self._blame_start(wrong, call, payload))

    async def _blame_start(
        self, error: Exception, call: AttemptContext, payload: ShellPayload | None
    ) -> Outcome:
        """Return how an attempt ends whose command could not be started."""
        if isinstance(error, OSError) and is_shortage(error):
            return await self._shortage.wait(error, call.stop)
        if payload is None:
            return Failed(Failure("spawn-failed", f"no pipe: {error}"))
        return Failed(_explain_start(error, payload))

    @contextlib.contextmanager
    def _find_commands(self, lease: Lease) -> Iterator[Spawner]:
        if not lease.is_suspect:
            yield self._commands
            return
        commands = Spawner()
        self._apart.add(commands)
        try:
            yield commands
        finally:
            self._apart.remove(commands)
            commands.close()


class NotStarted(Exception):
    """The command could not be started."""

    def __init__(self, cause: OSError | ValueError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Attempt:
    """One command, from its start to its end."""

    def __init__(
        self,
        call: AttemptContext,
        payload: ShellPayload,
        env: Mapping[str, str],
        orphans: Orphans | None,
        output_dir: Path | None,
    ) -> None:
        self._call = call
        self._payload = payload
        self._orphans = orphans
        self._mark = secrets.token_hex(8)
        self._env = {**env, **payload.env, **_describe(call.lease), MARK: self._mark}
        self._leader: Leader | None = None
        self._running: Running | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._told_bytes = 0
        self._taps: list[PipeReader] = []
        try:
            for stream in ("stdout", "stderr"):
                self._taps.append(PipeReader(stream, _find_file(output_dir, call.lease, stream)))
        except OSError:
            self.close()
            raise

    async def run(self, commands: Spawner, on_start: Callable[[], None]) -> Outcome:
        """Start the command and return how it ended; raise NotStarted."""
        try:
            running = self._start(commands, on_start)
        except (OSError, ValueError) as error:
            raise NotStarted(error) from error
        self._telling = asyncio.get_running_loop().call_later(_TELL_S, self._tell_output)
        await self._until_ended_or_stopped(running)
        self._telling.cancel()
        if not running.ended.done():
            await self._stop(running)
            self._release(running)
            await self._close_files()
            return Stopped()
        wrong = running.ended.exception()
        if isinstance(wrong, SpawnerDied):
            await self._kill_left()
        self._release(running)
        notes = await self._close_files()
        if isinstance(wrong, SpawnerDied):
            return Lost(str(wrong), wrong.blame)
        if isinstance(wrong, (OSError, ValueError)):
            raise NotStarted(wrong)
        return self._settle(running.ended.result(), notes)

    def _tell_output(self) -> None:
        """Show the end of what it has written so far, now and then."""
        written = sum(tap.kept.total_bytes for tap in self._taps)
        if written > self._told_bytes:
            self._told_bytes = written
            ends = [(tap.kept.tail or tap.kept.head)[-_TOLD_BYTES_MAX:] for tap in self._taps]
            text = "".join(end.decode("utf-8", "replace") for end in ends)
            self._call.report_progress(self._call.lease.key, Said(output=text))
        loop = asyncio.get_running_loop()
        self._telling = loop.call_later(_TELL_S, self._tell_output)

    def output(self) -> tuple[CapturedOutput, ...]:
        """Return what each stream that was written to has kept."""
        return tuple(tap.capture() for tap in self._taps if tap.kept.total_bytes)

    def close(self) -> None:
        """Leave nothing behind, however run() ended."""
        if self._telling is not None:
            self._telling.cancel()
        self._forget()
        if self._running is not None:
            self._running.abandon()
            with contextlib.suppress(RuntimeError):  # the loop's threads are already shut down
                self._kill_left()
        for tap in self._taps:
            tap.close()
            if tap.file is not None:
                tap.file.give_up()

    def _start(self, commands: Spawner, on_start: Callable[[], None]) -> Running:
        asked = self._payload
        argv = asked.command
        if isinstance(argv, str):
            # The space keeps a line that begins with - or + from being read as the shell's options.
            argv = [asked.shell, "-c", f" {argv}" if argv[0] in "-+" else argv]
        stdin = None if asked.stdin is None else asked.stdin.encode()
        command = Command(argv, self._env, asked.cwd, stdin)
        stdout, stderr = (tap.write_end for tap in self._taps)
        if self._orphans is not None:  # before the start, so that no crash can come between
            self._orphans.announce(self._mark)

        def record(pid: int, ticks: int | None) -> None:
            on_start()
            self._record(pid, ticks)

        running = self._running = commands.start(command, stdout, stderr, record)
        for tap in self._taps:
            tap.start()
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
        self._call.stop.listener = wake
        if self._call.stop.reason is None:
            await turn

    async def _stop(self, running: Running) -> None:
        """End the command and its descendants; each that holds a pipe has the grace time."""
        running.signal_group(signal.SIGTERM)
        running.signal_group(signal.SIGCONT)  # a stopped process would not see the first
        grace_s = parse_duration(self._payload.grace) / limits.SECOND
        holders: list[asyncio.Future[Any]] = [running.ended, *(tap.ended for tap in self._taps)]
        await asyncio.wait(holders, timeout=grace_s)
        running.signal_group(signal.SIGKILL)
        await asyncio.wait((running.ended,), timeout=_KILL_WAIT_S)
        await self._kill_left()

    def _kill_left(self) -> asyncio.Future[set[int]]:
        """Kill off the loop what still runs: what has left the group, or lost its starter."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(None, kill_left, {self._mark: self._leader})

    def _release(self, running: Running) -> None:
        """Take what is left in the pipes and let the process go, unless it outlives SIGKILL."""
        for tap in self._taps:
            tap.drain()
        if not running.ended.done():
            log.warning("process %s of job %s outlives SIGKILL", running.pid, self._job_text)
            return
        self._forget()
        self._running = None
        running.release()

    def _forget(self) -> None:
        if self._orphans is not None:
            self._orphans.forget(self._mark)

    async def _close_files(self) -> list[str]:
        files = [tap.file for tap in self._taps if tap.file is not None]
        for file in files:
            await file.close()
        notes = [file.note for file in files if file.note is not None]
        for note in notes:
            log.warning("job %s: output file %s", self._job_text, note)
        return notes

    def _settle(self, status: int, notes: list[str]) -> Outcome:
        if status in self._payload.success_codes:
            result: dict[str, Any] = {"exit_code": status}
            if notes:
                result["notes"] = notes
            return Completed(msgspec.json.encode(result))
        if status < 0:
            name = _name_signal(-status)
            return Failed(Failure("signal", f"the command was killed by {name}", signal=name))
        said = _find_last_line(self._taps[1])
        message = f"the command ended with exit code {status}" + (f": {said}" if said else "")
        return Failed(Failure("exit-code", message, exit_code=status))

    @property
    def _job_text(self) -> str:
        return render_id(self._call.lease.key.job_id)


def _describe(lease: Lease) -> dict[str, str]:
    """Return what a command may know of its own attempt."""
    told = {
        "SCHEDO_JOB_ID": render_id(lease.key.job_id),
        "SCHEDO_ATTEMPT": str(lease.key.attempt),
        "SCHEDO_EPOCH": str(lease.key.epoch),
        "SCHEDO_QUEUE": lease.queue,
        "SCHEDO_SCHEDULED_FOR": render_instant(lease.scheduled_for),
    }
    if lease.options.traceparent is not None:
        told["TRACEPARENT"] = lease.options.traceparent
        if lease.options.tracestate is not None:
            told["TRACESTATE"] = lease.options.tracestate
    return told


def _find_file(output_dir: Path | None, lease: Lease, stream: Stream) -> OutputFile | None:
    if output_dir is None:
        return None
    job_id, attempt, epoch = lease.key
    name = f"{render_id(job_id)}.{attempt}"
    # After a crash the same attempt number can be handed out again, in a later epoch.
    taken = output_dir / f"{name}.{epoch}.{stream}"
    return OutputFile(output_dir / f"{name}.{stream}", taken)


def _explain_start(error: Exception, payload: ShellPayload) -> Failure:
    if not isinstance(error, OSError):
        return Failure("spawn-failed", f"the command could not be started: {error}")
    reason = error.strerror or str(error)
    if payload.cwd is not None and error.filename == payload.cwd:
        return Failure("bad-cwd", f"the directory {payload.cwd!r} cannot be entered: {reason}")
    program = payload.shell if isinstance(payload.command, str) else payload.command[0]
    if error.errno == errno.ENOENT:
        message = f"{program!r} was not found, or the interpreter in its first line was not"
        return Failure("not-found", message)
    if error.errno in (errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
        return Failure("not-executable", f"{program!r} cannot be executed: {reason}")
    return Failure("spawn-failed", f"{program!r} could not be started: {reason}")


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _find_last_line(tap: PipeReader) -> str:
    """Return the last line of a stream without control characters, cut to fit a sentence."""
    text = (tap.kept.tail or tap.kept.head)[-1_024:].decode("utf-8", "replace").rstrip()
    line = text.rpartition("\n")[2]
    return "".join(c for c in line if c.isprintable())[:_SAID_CHARACTERS_MAX]
