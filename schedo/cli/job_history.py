"""The table of `schedo jobs history`: what happened to a job, and how far apart."""

from __future__ import annotations

import click

from schedo.cli.job_text import describe_error
from schedo.cli.latency import render_us
from schedo.cli.tables import print_table
from schedo.cli.times import keep_distance, read_now, render_duration_between, render_time
from schedo.client.messages import Record
from schedo.protocol.times import parse_duration


def print_history(history: Record) -> None:
    """Print the entries of a history, oldest first."""
    now = read_now()
    before = None
    rows = []
    for entry in history["items"]:
        rows.append(
            (
                render_time(entry["at"], now),
                "" if before is None else f"+{render_duration_between(before, entry['at'])}",
                entry["what"].replace("_", " "),
                str(entry.get("attempt", "")),
                _describe(entry),
            )
        )
        before = entry["at"]
    headers = ("AT", "AFTER", "WHAT", "ATTEMPT", "DETAIL")
    print_table(headers, rows, {"AT": keep_distance})
    if history.get("truncated"):
        click.echo("schedo: only the newest entries are shown", err=True)


def _describe(entry: Record) -> str:
    parts = [entry.get("action", "").replace("_", " "), entry.get("outcome", "")]
    if "by" in entry:
        parts.append(f"by {entry['by']}")
    if "operation" in entry:
        parts.append(f"with many others, operation {entry['operation']}")
    elif "via" in entry:
        parts.append(f"via {entry['via']}")
    if "ran" in entry:
        parts.append(f"after it ran {render_us(parse_duration(entry['ran']))}")
    if "worker" in entry:
        parts.append(f"on {entry['worker']}")
    if "error" in entry:
        parts.append(describe_error(entry["error"]))
    return " ".join(filter(None, parts))
