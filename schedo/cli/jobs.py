"""`schedo jobs`: lists, shows and changes jobs, and prints their output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.follow import follow, leaving_on_interrupt
from schedo.cli.job_changes import CHANGES
from schedo.cli.job_filters import takes_filters
from schedo.cli.job_history import print_history
from schedo.cli.job_options import given
from schedo.cli.job_output import latest_attempt, write_outputs
from schedo.cli.job_text import describe_error, describe_work, render_fact
from schedo.cli.job_why import print_checks
from schedo.cli.names import JOB
from schedo.cli.submission import wait_and_print
from schedo.cli.tables import print_facts, print_json, print_table, print_text
from schedo.cli.times import (
    keep_distance,
    read_now,
    render_duration_between,
    render_time,
)
from schedo.client import operations
from schedo.client.messages import Record
from schedo.client.records import is_final
from schedo.client.sync import Client
from schedo.core.job_filter import Order
from schedo.core.states import State
from schedo.protocol.job_filters import ORDERS
from schedo.protocol.times import render_instant

_LOOKED_AT_MAX = 50_000
_ENDED = ("completed_at", "failed_at", "cancelled_at", "expired_at")


@click.group()
def jobs() -> None:
    """List, show, change and retry jobs; print their output."""


for _command in CHANGES:
    jobs.add_command(_command)


@jobs.command("ls")
@takes_filters
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="Which jobs come first; due: only those that wait for their time.  [default: newest]",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of jobs to list.",
)
@click.option("--all", "is_whole", is_flag=True, help="Search through all jobs, however long.")
@as_json
@connected
def list_(client: Client, limit: int, is_whole: bool, is_json: bool, **filters: Any) -> None:
    """List jobs, newest first unless --order says otherwise.

    A search for conditions that few jobs meet looks through 50,000 jobs, unless --all.
    """
    records = find_jobs(client, filters, limit, is_whole=is_whole)
    if is_json:
        print_json(records)
        return
    now = read_now()
    headers = ("ID", "STATE", "TASK", "QUEUE", "WHEN", "TOOK", "FAILURES", "WORK")
    rows = [_row(record, now) for record in records]
    print_table(
        headers, rows, {"WHEN": keep_distance}, optional=("TOOK", "FAILURES", "QUEUE", "TASK")
    )


def find_jobs(
    client: Client, filters: Mapping[str, Any], limit: int, *, is_whole: bool
) -> list[Record]:
    """Return the first jobs of the filter; say on stderr how far an unfinished search came."""
    found: list[Record] = []
    looked_at, cursor = 0, None
    while True:
        size = min(limit - len(found), operations.PAGE_JOBS)
        page = client.send(operations.list_jobs(filters, size, cursor))
        found += page["items"]
        cursor, looked_at = page["next_cursor"], looked_at + page.get("looked_at", 0)
        if cursor is None or len(found) == limit:
            return found
        if looked_at >= _LOOKED_AT_MAX and not is_whole:
            to = render_time(page.get("searched_to"), read_now())
            way = "back" if filters.get("order") in (None, Order.NEWEST) else "up"
            text = f"looked through {looked_at:,} jobs {way} to {to}; --all looks further"
            click.echo(f"schedo: {text}", err=True)
            return found


def _row(job: Record, now: int) -> tuple[str, ...]:
    failures = f"{job.get('failures', 0)}/{job.get('max_attempts', '-')}"
    when = render_time(_key_time(job), now)
    return (
        job["id"],
        job["state"],
        job["task"],
        job["queue"],
        when,
        _render_run_time(job, now),
        failures,
        describe_work(job),
    )


def _render_run_time(job: Record, now: int) -> str:
    """Return how long the last attempt took, or has run so far."""
    if job["state"] == State.RUNNING:
        return render_duration_between(job.get("started_at"), render_instant(now))
    ended_at = next((job[name] for name in _ENDED if name in job), None)
    return render_duration_between(job.get("started_at"), ended_at)


def _key_time(job: Record) -> str | None:
    """Return when the job ended; if it runs, when it started; otherwise when it is due."""
    names = (*_ENDED, "started_at") if job["state"] == State.RUNNING else (*_ENDED, "scheduled_at")
    return next((job[name] for name in names if name in job), job.get("scheduled_at"))


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB)
@as_json
@connected
def show(client: Client, job_id: str, is_json: bool) -> None:
    """Show all fields of a job, its attempts, and what it waits for."""
    record = client.send(operations.get_job(job_id))
    attempts = client.send(operations.list_attempts(job_id))
    if is_json:
        print_json({**record, "attempts": attempts})
        return
    now = read_now()
    traceback = (record.get("error") or {}).get("traceback")
    facts = [(name, render_fact(name, value, now)) for name, value in record.items()]
    if record.get("started_at"):
        facts.append(("took", _render_run_time(record, now)))
    if not is_final(record):
        facts.append(("why", str(client.send(operations.why_job(job_id)).get("why", ""))))
    print_facts(facts)
    if attempts:
        click.echo()
        _print_attempts(attempts, now)
    if traceback:
        click.echo()
        print_text(escape(str(traceback).rstrip(), keep="\n"))


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB)
@as_json
@connected
def why(client: Client, job_id: str, is_json: bool) -> None:
    """Explain what a job waits for.

    It prints all checks, and what each worker says. A check or a worker that says "never" stays so
    until a user changes something.
    """
    record = client.send(operations.why_job(job_id))
    if is_json:
        print_json(record)
        return
    click.echo(escape(str(record.get("why", ""))))
    print_checks(record)


@jobs.command("attempts")
@click.argument("job_id", metavar="ID", type=JOB)
@as_json
@connected
def list_attempts(client: Client, job_id: str, is_json: bool) -> None:
    """List the attempts that did not complete the job."""
    attempts = client.send(operations.list_attempts(job_id))
    print_json(attempts) if is_json else _print_attempts(attempts, read_now())


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB)
@as_json
@connected
def history(client: Client, job_id: str, is_json: bool) -> None:
    """Show what happened to a job, when, and how long it took."""
    record = client.send(operations.get_history(job_id))
    print_json(record) if is_json else print_history(record)


def _print_attempts(attempts: Iterable[Record], now: int) -> None:
    headers = ("ATTEMPT", "OUTCOME", "STARTED", "TOOK", "WORKER", "ERROR")
    rows = [_attempt_row(attempt, now) for attempt in attempts]
    print_table(headers, rows, {"STARTED": keep_distance}, optional=("WORKER", "TOOK"))


def _attempt_row(attempt: Record, now: int) -> tuple[str, ...]:
    return (
        str(attempt["attempt"]),
        attempt["outcome"],
        render_time(attempt.get("started_at"), now),
        render_duration_between(attempt.get("started_at"), attempt.get("ended_at")),
        attempt.get("worker", "-"),
        describe_error(attempt.get("error") or {}),
    )


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB)
@as_json
@connected
def progress(client: Client, job_id: str, is_json: bool) -> None:
    """Print the progress of the running attempt.

    The server keeps the latest 100 reports.
    """
    reports = client.send(operations.list_progress(job_id))
    if is_json:
        print_json(reports)
        return
    if not reports:
        click.echo("schedo: no running attempt of the job has reported progress", err=True)
        return
    now = read_now()
    rows = [
        (
            render_time(report["at"], now),
            f"{report['percent']:g} %" if "percent" in report else "",
            report.get("message") or report.get("log", "").rpartition("\n")[2],
        )
        for report in reports
    ]
    print_table(("AT", "PERCENT", "MESSAGE"), rows)


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB)
@click.option("--stream", type=click.Choice(["stdout", "stderr", "body"]), help="Only this stream.")
@click.option("--attempt", type=click.IntRange(1), help="Number of the attempt.  [default: last]")
@click.option(
    "--follow", "-f", "is_following", is_flag=True, help="Print output as it comes, until the end."
)
@click.option(
    "--raw", "is_raw", is_flag=True, help="Do not escape control characters on a terminal."
)
@as_json
@connected
def output(
    client: Client, job_id: str, is_following: bool, is_raw: bool, is_json: bool, **which: Any
) -> None:
    """Print the output of a job's last attempt.

    Its stdout goes to stdout, and its stderr to stderr.
    """
    wanted = given(which, "stream", "attempt")
    if is_following:
        if wanted or is_json:
            raise click.UsageError("--follow prints all streams of the last attempt, as they are")
        with leaving_on_interrupt(job_id):
            follow(client, job_id, is_raw=is_raw)
        return
    kept = client.output(job_id)
    outputs = kept if is_json or "attempt" in wanted else latest_attempt(kept)
    outputs = [item for item in outputs if item.items() >= wanted.items()]
    if is_json:
        print_json(outputs)
        return
    write_outputs(outputs, is_raw=is_raw)
    if not outputs:
        click.echo(f"schedo: {_explain_no_output(client, job_id, bool(kept))}", err=True)


def _explain_no_output(client: Client, job_id: str, has_other: bool) -> str:
    if has_other:
        return "the job has output, but none of this stream or attempt"
    if is_final(client.get(job_id).record):
        return "no output is kept of this job or attempt"
    return "no output is kept of an attempt that has ended; --follow prints output now"


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB)
@as_json
@connected
def wait(client: Client, job_id: str, is_json: bool) -> None:
    """Wait until a job has ended; print its output or result.

    The exit code is that of its command; that of another task is 0, or 1 if it did not complete.
    """
    click.get_current_context().exit(wait_and_print(client, job_id, is_json=is_json))
