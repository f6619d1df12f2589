"""`schedo jobs`: lists, shows, cancels and retries jobs, and prints their output."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.errors import explain
from schedo.cli.escapes import escape
from schedo.cli.job_output import latest_attempt, write_outputs
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_full, render_time
from schedo.client import operations
from schedo.client.messages import Operation, Record
from schedo.client.records import is_final
from schedo.client.sync import Client
from schedo.core.states import State
from schedo.errors import SchedoError

_ENDED = ("completed_at", "failed_at", "cancelled_at", "expired_at")


@click.group()
def jobs() -> None:
    """List, show, cancel and retry jobs; print their output."""


@jobs.command("ls")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    help="Only jobs in this state.",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option("--schedule", help="Only jobs of this schedule.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of jobs to list.",
)
@as_json
@connected
def list_(client: Client, limit: int, is_json: bool, **filters: Any) -> None:
    """List jobs, newest first."""
    records = [job.record for job in client.list_jobs(limit=limit, **filters)]
    if is_json:
        print_json(records)
        return
    now = read_now()
    headers = ("ID", "STATE", "TASK", "QUEUE", "WHEN", "FAILURES", "WORK")
    print_table(headers, [_row(record, now) for record in records], {"WHEN": keep_distance})


def _row(job: Record, now: int) -> tuple[str, ...]:
    failures = f"{job.get('failures', 0)}/{job.get('max_attempts', '-')}"
    when = render_time(_key_time(job), now)
    return (job["id"], job["state"], job["task"], job["queue"], when, failures, describe_work(job))


def _key_time(job: Record) -> str | None:
    """Return when the job ended; if it runs, when it started; otherwise when it is due."""
    names = (*_ENDED, "started_at") if job["state"] == State.RUNNING else (*_ENDED, "scheduled_at")
    return next((job[name] for name in names if name in job), job.get("scheduled_at"))


def describe_work(job: Record) -> str:
    """Describe in one line what a job does, or why it failed."""
    error = job.get("error") or {}
    if error and job.get("state") in (State.FAILED, State.RETRYING):
        return ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    payload = job.get("payload")
    if isinstance(payload, dict):
        if job.get("task") == "shell" and "command" in payload:
            command = payload["command"]
            return command if isinstance(command, str) else shlex.join(command)
        if job.get("task") == "http" and "url" in payload:
            return f"{payload.get('method', 'POST')} {payload['url']}"
    return "" if payload is None else json.dumps(payload, separators=(",", ":"))


@jobs.command()
@click.argument("job_id", metavar="ID")
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
    facts = [(name, render_fact(name, value, now)) for name, value in record.items()]
    if not is_final(record):
        facts.append(("why", str(client.send(operations.why_job(job_id)).get("why", ""))))
    print_facts(facts)
    if attempts:
        click.echo()
        print_table(
            ("ATTEMPT", "OUTCOME", "ENDED", "ERROR"),
            [_attempt_row(attempt, now) for attempt in attempts],
        )


def render_fact(name: str, value: object, now: int) -> str:
    """Return one field of a response as text; instants in local time."""
    if isinstance(value, str):
        is_instant = name.endswith("_at") or name == "scheduled_for"
        return render_full(value, now) if is_instant else value
    return json.dumps(value, ensure_ascii=False)


def _attempt_row(attempt: Record, now: int) -> tuple[str, ...]:
    error = attempt.get("error") or {}
    ended = render_time(attempt.get("ended_at"), now)
    return (str(attempt["attempt"]), attempt["outcome"], ended, error.get("message", ""))


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...")
@as_json
@connected
def cancel(client: Client, job_ids: tuple[str, ...], is_json: bool) -> None:
    """Cancel waiting jobs, and stop running ones."""
    _change_each(client, job_ids, operations.cancel_job, is_json)


@jobs.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...")
@as_json
@connected
def retry(client: Client, job_ids: tuple[str, ...], is_json: bool) -> None:
    """Run failed, cancelled or expired jobs again."""
    _change_each(client, job_ids, operations.retry_job, is_json)


def _change_each(
    client: Client,
    job_ids: tuple[str, ...],
    change: Callable[[str], Operation[Record]],
    is_json: bool,
) -> None:
    """Change each job; set the exit code to 1 if the server rejected one of the changes."""
    changed, is_refused = [], False
    for answer in _try_each(client, job_ids, change):
        if isinstance(answer, SchedoError):
            is_refused = True
            click.echo(f"schedo: {escape(explain(answer))}", err=True)
            continue
        changed.append(answer)
        if not is_json:
            stopping = " (stopping)" if answer["state"] == State.RUNNING else ""
            click.echo(f"{escape(answer['id'])}  {escape(answer['state'])}{stopping}")
    if is_json:
        print_json(changed)
    if is_refused:
        click.get_current_context().exit(1)


def _try_each(
    client: Client, job_ids: tuple[str, ...], change: Callable[[str], Operation[Record]]
) -> Iterator[Record | SchedoError]:
    for job_id in job_ids:
        try:
            yield client.send(change(job_id))
        except SchedoError as error:
            yield error
            if error.code == "unreachable":
                return


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.option("--stream", type=click.Choice(["stdout", "stderr", "body"]), help="Only this stream.")
@click.option("--attempt", type=click.IntRange(1), help="Number of the attempt.  [default: last]")
@click.option(
    "--raw", "is_raw", is_flag=True, help="Do not escape control characters on a terminal."
)
@as_json
@connected
def output(
    client: Client,
    job_id: str,
    stream: str | None,
    attempt: int | None,
    is_raw: bool,
    is_json: bool,
) -> None:
    """Print the output of a job's last attempt: stdout to stdout, stderr to stderr."""
    outputs = client.output(job_id)
    if attempt is None:
        outputs = outputs if is_json else latest_attempt(outputs)
    else:
        outputs = [item for item in outputs if item["attempt"] == attempt]
    if stream is not None:
        outputs = [item for item in outputs if item["stream"] == stream]
    if is_json:
        print_json(outputs)
    else:
        write_outputs(outputs, is_raw=is_raw)
