"""`schedo failures`: what fails, in groups of the same task and error."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.client import monitoring_operations
from schedo.client.messages import Record
from schedo.client.sync import Client

_HEADERS = ("ATTEMPTS", "LAST HOUR", "FAILED JOBS", "TASK", "ERROR", "LAST", "LAST JOB")


@click.command()
@as_json
@connected
def failures(client: Client, is_json: bool) -> None:
    """List what has failed since the server started, in groups of the same task and error.

    In the error, # stands for numbers and ids, which differ from failure to failure.
    """
    found = client.send(monitoring_operations.list_failures())
    if is_json:
        print_json(found)
        return
    now = read_now()
    rows = [
        (
            f"{group['count']:,}",
            f"{sum(group['recent']):,}",
            f"{group['failed_jobs']:,}",
            group["task"],
            _describe(group),
            render_time(group["last_at"], now),
            group["last_job"],
        )
        for group in found["items"]
    ]
    print_table(_HEADERS, rows, {"LAST": keep_distance})


def _describe(group: Record) -> str:
    """Return the kind of the error with its exit code, and its message."""
    kind = group["type"] if group["exit_code"] is None else f"{group['type']} {group['exit_code']}"
    return f"{kind}: {group['message']}" if group["message"] else kind
