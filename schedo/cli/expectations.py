"""`schedo expectations`: named expectations of work outside of schedo, and their beats."""

from __future__ import annotations

from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.job_options import expect_options, given
from schedo.cli.job_text import render_fact
from schedo.cli.names import EXPECTATION
from schedo.cli.schedules import render_rule
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.cli.value_types import CRON, DURATION
from schedo.client import expectation_operations as operations
from schedo.client.messages import Record
from schedo.client.sync import Client


@click.group()
def expectations() -> None:
    """Watch work outside of schedo: a beat must come at each instant of a rule."""


@expectations.command("ls")
@as_json
@connected
def list_(client: Client, is_json: bool) -> None:
    """List the expectations, their last beats and the next limits."""
    records = client.send(operations.list_expectations())
    if is_json:
        print_json(records)
        return
    now = read_now()
    rows = [
        (
            record["name"],
            record["state"],
            str(record["missed"]),
            render_rule(record),
            record.get("within", "-"),
            render_time(record.get("last_beat_at"), now),
            render_time(record.get("limit_at"), now),
        )
        for record in records
    ]
    headers = ("NAME", "STATE", "MISSED", "RULE", "WITHIN", "LAST BEAT", "LIMIT")
    compact = {"LAST BEAT": keep_distance, "LIMIT": keep_distance}
    print_table(headers, rows, compact, optional=("WITHIN", "RULE"))


@expectations.command()
@click.argument("name", type=EXPECTATION)
@as_json
@connected
def show(client: Client, name: str, is_json: bool) -> None:
    """Show all fields of a named expectation."""
    record = client.send(operations.get_expectation(name))
    if is_json:
        print_json(record)
        return
    now = read_now()
    print_facts([(field, render_fact(field, value, now)) for field, value in record.items()])


@expectations.command()
@click.argument("name", type=EXPECTATION)
@click.option("--every", type=DURATION, help="A beat is expected this long after the last.")
@click.option(
    "--cron", type=CRON, metavar="EXPR", help="A beat is expected at each instant of the rule."
)
@click.option("--tz", help="Time zone of --cron.  [default: UTC]")
@expect_options
@as_json
@connected
def put(client: Client, name: str, is_json: bool, **options: Any) -> None:
    """Create or change an expectation.

    For example: schedo expectations put laptop --every 1d --within 2h
    """
    if (options["cron"] is None) == (options["every"] is None):
        raise click.UsageError("give exactly one of --cron and --every")
    if options["within"] is None:
        raise click.UsageError("give --within: how late a beat may come")
    record = client.send(operations.put_expectation(name, given(options, *options)))
    for warning in record.get("warnings", []):
        click.echo(f"schedo: warning: {escape(warning)}", err=True)
    effect = record.get("effect", "stored")
    _announce(record, "up to date" if effect == "unchanged" else effect, is_json=is_json)


@expectations.command()
@click.argument("name", type=EXPECTATION)
@as_json
@connected
def beat(client: Client, name: str, is_json: bool) -> None:
    """Note that the work has been done.

    For example: backup.sh && schedo expectations beat backup
    """
    _announce(client.send(operations.beat(name)), "has its beat", is_json=is_json)


@expectations.command()
@click.argument("name", type=EXPECTATION)
@as_json
@connected
def rm(client: Client, name: str, is_json: bool) -> None:
    """Delete the expectation."""
    client.send(operations.delete_expectation(name))
    if is_json:
        print_json({"name": name, "deleted": True})
    else:
        click.echo(f"expectation {escape(name)} deleted")


def _announce(record: Record, what: str, *, is_json: bool) -> None:
    if is_json:
        print_json(record)
        return
    limit = record.get("limit_at")
    until = "no beat is expected" if limit is None else f"the next beat by {_time(limit)}"
    click.echo(f"expectation {escape(record['name'])} {what}; {until}")


def _time(instant: str) -> str:
    return render_time(instant, read_now())
