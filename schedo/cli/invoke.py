"""`schedo invoke`: runs a job on a worker right now, or fails at once."""

from __future__ import annotations

from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.follow import follow
from schedo.cli.job_options import INVOKE_FIELDS, given, invoke_options
from schedo.cli.job_text import describe_state
from schedo.cli.job_why import print_dry_run
from schedo.cli.submission import print_end
from schedo.cli.submit import read_payload, task_and_payload
from schedo.cli.tables import print_json
from schedo.client.operations import INVOKE_WAIT_S
from schedo.client.records import JobView
from schedo.client.sync import Client
from schedo.core.limits import SECOND
from schedo.protocol.query import WAIT_US_MAX


@click.command()
@task_and_payload
@invoke_options
@click.option(
    "--on-loss",
    type=click.Choice(["fail", "retry_once"]),
    help="What happens if the worker dies while it runs the job; fail is the default.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, WAIT_US_MAX / SECOND),
    metavar="SECONDS",
    default=INVOKE_WAIT_S,
    show_default=True,
    help="Wait this long for the end; 0 waits only until a worker has accepted the job.",
)
@click.option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    help="Start nothing: say which workers could take the job now, and why others could not.",
)
@as_json
@connected
def invoke(
    client: Client,
    task: str,
    arguments: tuple[str, ...],
    payload: object,
    wait_s: float,
    is_json: bool,
    **options: Any,
) -> None:
    """Run a job of TASK on a worker right now, or fail at once if no worker has room for it.

    Prints the result. The exit code is 1 if no worker accepted the job, or if it failed.
    """
    fields = given(options, *INVOKE_FIELDS, "on_loss")
    if options["is_dry_run"]:
        found = client.would_start(task, read_payload(arguments, payload), **fields)
        print_json(found) if is_json else print_dry_run(found)
        click.get_current_context().exit(0 if found["would_start"] else 1)
    job: JobView = client.invoke(task, read_payload(arguments, payload), wait=wait_s, **fields)
    if job.is_final:
        if task == "shell" and not is_json:
            job = follow(client, job.id)
        click.get_current_context().exit(print_end(job, is_json=is_json))
    elif is_json:
        print_json(job.record)
    else:
        click.echo(describe_state(job.record))
