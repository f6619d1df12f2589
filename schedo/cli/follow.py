"""Prints the output of a job as it comes, and exactly once.

While an attempt runs, the server knows the end of each stream and its length. If that end begins at
or before the last byte that is printed, its new part is printed. Otherwise bytes between the two
are missing, or they are not text, and nothing of the stream is printed for now. When the job has
ended, the rest is read from its stored output, so that stdout has each byte once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import click

from schedo.cli.escapes import escape
from schedo.cli.job_output import latest_attempt, read_bytes, write_output
from schedo.client import operations
from schedo.client.messages import Record
from schedo.client.records import JobView, is_final
from schedo.client.sync import Client
from schedo.core import limits
from schedo.core.states import State

_POLL_S = 1.0  # commands report their output this often
_HALF_BYTES = limits.OUTPUT_BYTES_MAX // 2  # a longer stream is stored without its middle
_POLLS_TO_WHY = 3
_STREAMS = ("stdout", "stderr")
INTERRUPTED = 130  # what a shell shows of a command that SIGINT has ended


@contextmanager
def leaving_on_interrupt(job_id: str) -> Iterator[None]:
    """Let Ctrl-C end the command, and say that it does not end the job."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"schedo: interrupted; job {escape(job_id)} continues", err=True)
        click.get_current_context().exit(INTERRUPTED)


def follow(client: Client, job_id: str, *, is_raw: bool = False) -> JobView:
    """Print the output of the job until it has ended; return the ended job."""
    printer, waiting = _Printer(is_raw), _Waiting(client, job_id)
    while True:
        poll = next(operations.wait_job(job_id, _POLL_S, time.monotonic))
        began = time.monotonic()
        record = client.send(poll)
        if is_final(record):
            break
        time.sleep(poll.early_s(time.monotonic() - began))
        waiting.note(record)
        for report in client.send(operations.list_progress(job_id)):
            printer.show_report(report)
    for output in latest_attempt(client.output(job_id)):
        printer.show_rest(output)
    return JobView(record)


class _Waiting:
    """Says what the job waits for if it is due and does not start."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self._job_id = job_id
        self._polls = 0  # in which the job was queued
        self._said = ""

    def note(self, record: Record) -> None:
        """Print what the job waits for, some seconds after it is due and whenever that changes."""
        if record["state"] != State.QUEUED:
            self._polls = 0
            return
        self._polls += 1
        if self._polls % _POLLS_TO_WHY == 0:
            why = str(self._client.send(operations.why_job(self._job_id)).get("why", ""))
            if why != self._said:
                self._said = why
                click.echo(f"schedo: job {escape(self._job_id)} waits: {escape(why)}", err=True)


class _Printer:
    """How many bytes of each stream of the latest attempt are printed."""

    def __init__(self, is_raw: bool) -> None:
        self._is_raw = is_raw
        self._attempt = 0
        self._printed: dict[str, int] = {}

    def show_report(self, report: Record) -> None:
        """Print the new part of each stream in the report, if no byte before it is missing."""
        self._begin(report["attempt"])
        for stream in _STREAMS:
            text = report.get(stream)
            if not text or "\ufffd" in text:
                continue
            data = text.encode()
            end = report.get(f"{stream}_bytes", 0)
            start = end - len(data)
            printed = self._printed.get(stream, 0)
            if start <= printed < end:
                self._write(stream, data[printed - start :])
                self._printed[stream] = end

    def show_rest(self, output: Record) -> None:
        """Print what is left of a stored stream."""
        self._begin(output["attempt"])
        stream, printed = output["stream"], self._printed.get(output["stream"], 0)
        if not printed:
            write_output(output, is_raw=self._is_raw)
            return
        data, left = read_bytes(output), output["total_bytes"] - printed
        if output.get("truncated") and printed > _HALF_BYTES:
            if left > _HALF_BYTES:
                self._write(stream, b"\n[... %d bytes left out ...]\n" % (left - _HALF_BYTES))
            data = data[len(data) - min(left, _HALF_BYTES) :]
        else:
            data = data[printed:]
        self._write(stream, data)

    def _begin(self, attempt: int) -> None:
        if attempt != self._attempt:
            if self._printed:
                click.echo(f"schedo: attempt {attempt} begins", err=True)
            self._attempt = attempt
            self._printed = {}

    def _write(self, stream: str, data: bytes) -> None:
        target: IO[str] = sys.stderr if stream == "stderr" else sys.stdout
        if self._is_raw or not target.isatty():
            click.echo(data, file=target, nl=False)
        else:
            click.echo(escape(data.decode("utf-8", "replace"), keep="\n\t"), file=target, nl=False)
        target.flush()
