"""What the handlers of an application print and log is kept with their jobs.

Only processes of schedo's own keep it: the children of a server and `schedo worker`. There,
sys.stdout and sys.stderr are replaced. What a handler writes, in its coroutine or in a thread that
has its context variables, still goes where it went, and its job keeps the first and the last bytes
of it, as of a command. The lines that it logs are kept with its stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast

from schedo.core.leases import CapturedOutput
from schedo.core.progress import ProgressUpdate
from schedo.log_format import LogFormat, make_formatter
from schedo.tasks.current_job import find_context
from schedo.tasks.head_and_tail import HeadAndTail
from schedo.tasks.log_records import name_jobs_in_logs
from schedo.tasks.runner import AttemptContext, KeptOutput

REPORT_S = 1.0  # between two progress reports with the output of a running handler
_REPORTED_BYTES_MAX = 16_384  # of each stream


class TaskOutput:
    """Keeps the output of the attempts in this process.

    loop: runs the attempts; it is set before the first one begins.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._texts: deque[tuple[_AttemptOutput, str, bytes]] = deque()  # not kept yet
        self._lock = threading.Lock()
        self._first_lock = threading.Lock()  # for the first text of an attempt
        self._process = os.getpid()

    def redirect(self) -> None:
        """Replace sys.stdout and sys.stderr; what is written to them still arrives there."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Where no terminal is, prints would appear late, and those of a killed process never.
            sys.stdout.reconfigure(line_buffering=True)
        sys.stdout = cast(TextIO, _Tee(sys.stdout, "stdout", self))
        sys.stderr = cast(TextIO, _Tee(sys.stderr, "stderr", self))

    def make_handler(self, form: LogFormat) -> logging.Handler:
        """Return a handler of log records that keeps those of a handler's job."""
        return _JobHandler(form, self)

    def keep(self, context: AttemptContext, stream: str, text: str) -> None:
        """Keep a text of the attempt; any thread may call this.

        A process that a handler has forked keeps nothing: its memory is its own, and another thread
        may have had the lock when it was made, which nothing releases there.
        """
        if os.getpid() != self._process:
            return
        kept = cast(_AttemptOutput, context.output or self._make_output(context))
        self._texts.append((kept, stream, text.encode("utf-8", "replace")))
        self._take_texts()

    def _make_output(self, context: AttemptContext) -> KeptOutput | None:
        made = _AttemptOutput(context, self)
        with self._first_lock:
            if context.output is None:
                context.output = made
        return context.output

    def _take_texts(self) -> None:
        """Keep the texts that wait, unless another call does: it takes the new ones as well.

        So no print waits for the lock: a finalizer of the application may print while its thread
        has it, or wait for what another thread that logs has locked.
        """
        while self._texts and self._lock.acquire(blocking=False):
            try:
                self._feed_texts()
            finally:
                self._lock.release()

    def _feed_texts(self) -> None:
        while self._texts:
            kept, stream, data = self._texts.popleft()
            kept.streams[stream].feed(data)
            is_due, kept.is_report_due = not kept.is_report_due, True
            if is_due and self.loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self.loop.call_soon_threadsafe(self.loop.call_later, REPORT_S, kept.report)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep all texts, and have the lock for the block."""
        with self._lock:
            self._feed_texts()
            yield
        self._take_texts()


class _AttemptOutput:
    """The output of one attempt."""

    def __init__(self, context: AttemptContext, output: TaskOutput) -> None:
        self.streams = {"stdout": HeadAndTail(), "stderr": HeadAndTail()}
        self.is_report_due = False
        self._context = context
        self._output = output
        self._is_over = False

    def report(self) -> None:
        """Report the ends of the streams as progress."""
        if self._is_over:
            return
        with self._output.locked():
            self.is_report_due = False
            ends = [kept.read_end(_REPORTED_BYTES_MAX) for kept in self.streams.values()]
        (stdout, stdout_bytes), (stderr, stderr_bytes) = ends
        update = ProgressUpdate(
            stdout=stdout or None,
            stderr=stderr or None,
            stdout_bytes=stdout_bytes or None,
            stderr_bytes=stderr_bytes or None,
        )
        self._context.report_progress(self._context.lease.key, update)

    def end(self) -> tuple[CapturedOutput, ...]:
        """Return what was kept of each stream; nothing is reported any more."""
        self._is_over = True
        with self._output.locked():
            return tuple(
                CapturedOutput(name, kept.head, kept.tail, kept.total_bytes)  # type: ignore[arg-type]
                for name, kept in self.streams.items()
                if kept.total_bytes
            )


class _Tee:
    """A text stream that passes everything on, and keeps what a handler writes."""

    def __init__(self, stream: TextIO, name: str, output: TaskOutput) -> None:
        self._stream = stream
        self._name = name
        self._output = output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        count = self._stream.write(text)
        context = find_context()
        if context is not None:
            self._output.keep(context, self._name, text)
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


class _JobHandler(logging.Handler):
    """Keeps the log lines of a handler with its job."""

    def __init__(self, form: LogFormat, output: TaskOutput) -> None:
        super().__init__()
        self.setFormatter(make_formatter(form))
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        context = find_context()
        if context is not None:
            try:
                self._output.keep(context, "stderr", f"{self.format(record)}\n")
            except Exception:
                self.handleError(record)


def keep_task_output(form: LogFormat) -> TaskOutput:
    """Keep the output of the handlers in this process, and name their jobs in all log records."""
    name_jobs_in_logs()
    output = TaskOutput()
    logging.getLogger().addHandler(output.make_handler(form))
    output.redirect()
    return output
