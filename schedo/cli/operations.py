"""`schedo operations`: lists, shows, cancels and undoes the operations on many jobs."""

from __future__ import annotations

import click

from schedo.cli.bulk import ACTIVE, end_with, follow_operation, render_progress, say_how_to_undo
from schedo.cli.connection import as_json, connected
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.client import bulk
from schedo.client.messages import Record
from schedo.client.sync import Client


@click.group()
def operations() -> None:
    """List, show, cancel and undo operations on many jobs.

    `schedo jobs cancel|retry|run|delete` with filters begins an operation.
    """


@operations.command("ls")
@as_json
@connected
def list_(client: Client, is_json: bool) -> None:
    """List the operations that run and the latest that have ended.

    The newest comes first.
    """
    records = client.send(bulk.list_operations())
    if is_json:
        print_json(records)
        return
    now = read_now()
    headers = ("ID", "STATE", "ACTION", "PROGRESS", "BEGAN", "BY", "WHERE")
    rows = [
        (
            record["id"],
            record["state"],
            f"undo {record['action']}" if "undoes" in record else record["action"],
            render_progress(record),
            render_time(record["created_at"], now),
            record.get("requested_by", "-"),
            _where(record),
        )
        for record in records
    ]
    print_table(headers, rows, {"BEGAN": keep_distance}, optional=("BY", "BEGAN"))


def _where(record: Record) -> str:
    return " ".join(f"{name}={value}" for name, value in record["where"].items())


@operations.command()
@click.argument("number", metavar="ID")
@click.option(
    "--follow", "-f", "is_following", is_flag=True, help="Show the progress until the end."
)
@as_json
@connected
def show(client: Client, number: str, is_following: bool, is_json: bool) -> None:
    """Show which jobs an operation changes, and how far it is."""
    record = client.send(bulk.get_operation(number))
    if is_following:
        record = follow_operation(client, record, is_quiet=is_json)
    _print(record, is_json)
    if is_following:
        end_with(record, is_json=is_json)
    elif not is_json and record["state"] not in ACTIVE:
        say_how_to_undo(record)


@operations.command()
@click.argument("number", metavar="ID")
@as_json
@connected
def cancel(client: Client, number: str, is_json: bool) -> None:
    """Stop an operation; the jobs that it has changed stay changed.

    To put those back, undo the operation afterwards.
    """
    record = client.send(bulk.cancel_operation(number))
    _print(record, is_json)
    if not is_json:
        say_how_to_undo(record)


@operations.command()
@click.argument("number", metavar="ID")
@click.option("--no-wait", is_flag=True, help="Begin, and do not wait for the end.")
@as_json
@connected
def undo(client: Client, number: str, no_wait: bool, is_json: bool) -> None:
    """Put back the jobs that an operation has changed.

    What it has cancelled, retried or made due is put back. The operation must have ended, and it
    can be undone once. Jobs that have started since, or that were changed again, stay as they are
    and count as skipped. Running jobs that the operation has stopped, and deleted jobs, cannot be
    brought back. `schedo operations ls` shows the IDs.
    """
    record = client.send(bulk.undo_operation(number))
    if not no_wait:
        record = follow_operation(client, record, is_quiet=is_json)
    _print(record, is_json)
    if not no_wait:
        end_with(record, is_json=is_json)


def _print(record: Record, is_json: bool) -> None:
    if is_json:
        print_json(record)
        return
    now = read_now()
    shown = {
        **record,
        "where": _where(record),
        "created_at": render_time(record["created_at"], now),
    }
    if record["state"] in ACTIVE:
        shown["searched_back_to"] = render_time(record["searched_back_to"], now)
    else:
        del shown["searched_back_to"]
        shown["ended_at"] = render_time(record.get("ended_at"), now)
    errors = shown.pop("errors")
    print_facts([(name, str(value)) for name, value in shown.items()])
    if errors:
        click.echo()
        print_table(("JOB", "ERROR"), [(error["job"], error["message"]) for error in errors])
