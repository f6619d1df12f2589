"""The commands of `schedo jobs` that change jobs: cancel, retry, run, delete, set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from schedo.cli.bulk import change_many, takes_many
from schedo.cli.connection import as_json, connected
from schedo.cli.errors import describe_problem, explain
from schedo.cli.escapes import escape
from schedo.cli.job_filters import given_filters
from schedo.cli.job_options import CHANGE_FIELDS, change_options, given
from schedo.cli.job_text import describe_state
from schedo.cli.names import JOB
from schedo.cli.tables import print_json
from schedo.cli.times import warn_of_past
from schedo.client import operations
from schedo.client.messages import Operation, Record
from schedo.client.sync import Client
from schedo.core.states import State
from schedo.errors import SchedoError


def _command(
    name: str, change: Callable[[str], Operation[Any]], text: str, *others: str
) -> click.Command:
    """Return a command that changes the jobs with these ids, or all jobs that match filters.

    text, others: the paragraphs of its help.
    """

    @click.command(name, help="\n\n".join((text, _TWO_FORMS, *others)))
    @click.argument("job_ids", nargs=-1, metavar="[ID]...", type=JOB)
    @takes_many
    @as_json
    @connected
    def command(client: Client, job_ids: tuple[str, ...], is_json: bool, **options: Any) -> None:
        is_many = bool(given_filters(options))
        if bool(job_ids) == is_many:
            raise click.UsageError(
                "give either ids of jobs or filters such as --queue, not both"
                if is_many
                else "give ids of jobs, or filters such as --queue"
            )
        if is_many:
            change_many(client, name, options, is_json)
            return
        for option in _FOR_MANY:
            if options[option] is not None and options[option] is not False:
                flag = option.replace("_", "-")
                raise click.UsageError(f"--{flag} goes with filters, not with ids")
        _change_each(client, job_ids, change, is_json)

    return command


_FOR_MANY = ("dry_run", "no_wait", "max_jobs", "expected_count")
_TWO_FORMS = """Give ids of jobs, or filters. With filters, the server changes all jobs that match
and that exist by then, in the background: this command counts them, asks, begins the operation and
shows its progress."""
_UNDO = "`schedo operations undo ID` puts back what has not started or changed since."

cancel = _command(
    "cancel",
    operations.cancel_job,
    "Cancel waiting jobs, and stop running ones.",
    "\b\nschedo jobs cancel --queue mail --state queued --dry-run"
    "\nschedo jobs cancel --queue mail --state queued --expected-count 40",
    f"{_UNDO} Jobs that ran are not started again.",
)
retry = _command(
    "retry",
    operations.retry_job,
    "Run failed, cancelled or expired jobs again.",
    "\b\nschedo jobs retry --task report --error Timeout --ended-after 3h --dry-run"
    "\nschedo jobs retry --task report --error Timeout --ended-after 3h --yes",
    _UNDO,
)
run_now = _command(
    "run",
    operations.run_job_now,
    "Make waiting jobs due now.",
    "\b\nschedo jobs run --task report --state retrying",
    _UNDO,
)
delete = _command(
    "delete",
    operations.delete_job,
    "Delete ended jobs with their output.",
    "\b\nschedo jobs delete --state completed --ended-before 7d --dry-run",
    "This cannot be undone.",
)


@click.command("set")
@click.argument("job_ids", nargs=-1, required=True, metavar="ID...", type=JOB)
@change_options
@as_json
@connected
def set_(client: Client, job_ids: tuple[str, ...], is_json: bool, **options: Any) -> None:
    """Change when waiting jobs are due, or their priority."""
    changes = given(options, *CHANGE_FIELDS)
    if "delay" in changes and "run_at" in changes:
        raise click.UsageError("give only one of --in and --at")
    warn_of_past(changes)
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
            _show_error(record, is_json=is_json)
            continue
        changed.append(record)
        if not is_json:
            stopping = " (stopping)" if record["state"] == State.RUNNING else ""
            click.echo(describe_state(record) + stopping)
    if is_json:
        print_json(changed)
    if is_refused:
        click.get_current_context().exit(1)


def _show_error(error: SchedoError, *, is_json: bool) -> None:
    """Print the error of one of the jobs on stderr; as JSON, it is a line."""
    problem = json.dumps(describe_problem(error))
    click.echo(problem if is_json else f"schedo: {escape(explain(error))}", err=True)


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


CHANGES = (cancel, retry, run_now, delete, set_)
