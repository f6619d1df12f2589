"""`schedo log`: who changed what by hand."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.tables import print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.client import monitoring_operations
from schedo.client.sync import Client

_HEADERS = ("WHEN", "WHO", "VIA", "ACTION", "TARGET", "ANSWER", "COUNT", "ADDRESS")


@click.command()
@click.option("--who", metavar="NAME", help="Only changes by the token of this name.")
@click.option("--action", metavar="NAME", help="Only changes by this operation: retry_job.")
@click.option("--target", metavar="ADDRESS", help="Only changes of this: schedules/nightly.")
@click.option("--before", metavar="INSTANT", help="Only changes before this instant.")
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many."
)
@as_json
@connected
def log(client: Client, is_json: bool, **filters: str | int | None) -> None:
    """List who changed what through the page, the command line or the API, newest first.

    Jobs that programs submit are not in it. The latest 5,000 changes of single jobs and the
    latest 5,000 others are kept, for 90 days.
    """
    page = client.send(monitoring_operations.list_log(filters))
    if is_json:
        print_json(page["items"])
        return
    now = read_now()
    rows = [
        (
            render_time(entry["at"], now),
            entry["who"],
            entry["via"],
            entry["action"],
            entry["target"],
            entry["answer"],
            f"{entry['count']:,}" if "count" in entry else "-",
            entry.get("address") or "-",
        )
        for entry in page["items"]
    ]
    print_table(_HEADERS, rows, {"WHEN": keep_distance}, optional=("ADDRESS", "COUNT"))
