"""Submits the job of `schedo run` or `schedo submit`, and waits for its end with --wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from schedo.cli.escapes import escape
from schedo.cli.follow import follow, leaving_on_interrupt
from schedo.cli.job_options import SHARED_FIELDS, SINGLE_FIELDS, given
from schedo.cli.job_text import describe_state
from schedo.cli.tables import print_json
from schedo.cli.times import warn_of_past
from schedo.client.errors import job_failed
from schedo.client.records import JobView
from schedo.client.sync import Client
from schedo.client.sync_handles import SyncJobHandle
from schedo.core.states import State
from schedo.errors import SchedoError

wait_option = click.option(
    "--wait",
    "is_waiting",
    is_flag=True,
    help="Wait for the end; a command's output and exit code become those of schedo.",
)


def check_times(options: Mapping[str, Any], *names: str) -> None:
    """Raise UsageError if the user gave several of the options that say when the job is due."""
    times = {"delay": "--in", "run_at": "--at", "cron": "--cron"}
    if sum(options[name] is not None for name in names) > 1:
        *others, last = (times[name] for name in names)
        raise click.UsageError(f"give only one of {', '.join(others)} and {last}")
    if options["is_waiting"] and options["broadcast"]:
        raise click.UsageError("--wait cannot be used with --broadcast, which makes several jobs")


def submit_job(
    client: Client, task: str, payload: object, options: dict[str, Any], *, is_json: bool
) -> None:
    """Submit the job and print it; with --wait, exit as its end demands."""
    fields = given(options, *SINGLE_FIELDS, *SHARED_FIELDS)
    warn_of_past(fields)
    if fields.pop("broadcast", False):
        _show_broadcast(client.broadcast(task, payload, **fields), is_json=is_json)
        return
    job = client.submit(task, payload, **fields)
    for warning in job.record.get("warnings") or []:
        click.echo(f"schedo: warning: {escape(str(warning))}", err=True)
    if job.is_conflict:
        click.echo("schedo: no job was made: this one has the unique key", err=True)
    if options["is_waiting"]:
        with _telling_of_the_job(job.id):
            code = wait_and_print(client, job.id, is_json=is_json)
        click.get_current_context().exit(code)
    if is_json:
        print_json(job.record)
    else:
        click.echo(describe_state(job.record))


@contextmanager
def _telling_of_the_job(job_id: str) -> Iterator[None]:
    """After an error of the wait, say that the job was accepted: a second one would be too many."""
    try:
        yield
    except SchedoError:
        number = escape(job_id)
        way = f"to wait for its end:  schedo jobs wait {number}"
        click.echo(f"schedo: job {number} was accepted; {way}", err=True)
        raise


def _show_broadcast(items: list[SyncJobHandle | SchedoError], *, is_json: bool) -> None:
    """Print the job of each worker; raise the first error of a rejected job."""
    errors = [item for item in items if isinstance(item, SchedoError)]
    jobs = [item for item in items if not isinstance(item, SchedoError)]
    if is_json:
        print_json([job.record for job in jobs])
    else:
        for job in jobs:
            click.echo(describe_state(job.record))
    if errors:
        raise errors[0]


def wait_and_print(client: Client, job_id: str, *, is_json: bool) -> int:
    """Wait for the end of the job, print its output or result, and return the exit code for it.

    The output of a command is printed as it comes; another completed job leaves its result.
    """
    with leaving_on_interrupt(job_id):
        job = client.wait(job_id) if is_json else follow(client, job_id)
    return print_end(job, is_json=is_json)


def print_end(job: JobView, *, is_json: bool) -> int:
    """Print the result or the error of a job that has ended, and return the exit code for it."""
    code = find_exit_code(job)
    if is_json:
        print_json(job.record)
    elif job.task != "shell" and job.record.get("result") is not None:
        print_json(job.record["result"])
    if code is None:
        click.echo(f"schedo: {escape(str(job_failed(job.record)))}", err=True)
        return 1
    return code


def find_exit_code(job: JobView) -> int | None:
    """Return the exit code that a shell would show, or None if there is none."""
    if job.state is State.COMPLETED:
        result = job.record.get("result")
        if job.task == "shell" and isinstance(result, dict):
            return int(result.get("exit_code", 0))
        return 0
    error = job.record.get("error") or {}
    if job.state is State.FAILED and isinstance(error.get("exit_code"), int):
        return int(error["exit_code"])
    if job.state is State.FAILED and error.get("signal") in signal.Signals.__members__:
        return 128 + signal.Signals[error["signal"]]
    return None
