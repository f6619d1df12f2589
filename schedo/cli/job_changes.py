"""The commands of `schedo jobs` that change jobs: cancel, retry, run, set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.errors import explain
from schedo.cli.escapes import escape
from schedo.cli.job_text import describe_state
from schedo.cli.tables import print_json
from schedo.cli.times import read_future
from schedo.client import operations
from schedo.client.messages import Operation, Record
from schedo.client.sync import Client
from schedo.core.states import State
from schedo.errors import SchedoError


@click.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...")
@as_json
@connected
def cancel(client: Client, job_ids: tuple[str, ...], is_json: bool) -> None:
    """Cancel waiting jobs, and stop running ones."""
    _change_each(client, job_ids, operations.cancel_job, is_json)


@click.command()
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...")
@as_json
@connected
def retry(client: Client, job_ids: tuple[str, ...], is_json: bool) -> None:
    """Run failed, cancelled or expired jobs again."""
    _change_each(client, job_ids, operations.retry_job, is_json)


@click.command("run")
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...")
@as_json
@connected
def run_now(client: Client, job_ids: tuple[str, ...], is_json: bool) -> None:
    """Make waiting jobs due now."""
    _change_each(client, job_ids, operations.run_job_now, is_json)


@click.command("set")
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...")
@click.option("--in", "delay", metavar="DURATION", help="Run the job after this time: 5s, 1h30m.")
@click.option(
    "--at", metavar="TIME", help='Run the job at this time: "18:30", "2026-11-20 18:30", RFC 3339.'
)
@click.option("--priority", type=int, help="-9 to 9; higher runs first.")
@as_json
@connected
def set_(
    client: Client,
    job_ids: tuple[str, ...],
    delay: str | None,
    at: str | None,
    priority: int | None,
    is_json: bool,
) -> None:
    """Change when waiting jobs are due, or their priority."""
    if delay is not None and at is not None:
        raise click.UsageError("give only one of --in and --at")
    run_at = None if at is None else read_future(at, "--at")
    wanted = {"delay": delay, "run_at": run_at, "priority": priority}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if not changes:
        raise click.UsageError("give --in, --at or --priority")
    _change_each(
        client, job_ids, lambda job_id: operations.reschedule_job(job_id, changes), is_json
    )


def _change_each(
    client: Client,
    job_ids: tuple[str, ...],
    change: Callable[[str], Operation[Record]],
    is_json: bool,
) -> None:
    """Change each job; set the exit code to 1 if the server rejected one of the changes."""
    changed, is_refused = [], False
    for record in _try_each(client, job_ids, change):
        if isinstance(record, SchedoError):
            is_refused = True
            click.echo(f"schedo: {escape(explain(record))}", err=True)
            continue
        changed.append(record)
        if not is_json:
            stopping = " (stopping)" if record["state"] == State.RUNNING else ""
            click.echo(describe_state(record) + stopping)
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


CHANGES = (cancel, retry, run_now, set_)
