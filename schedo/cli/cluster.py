"""`schedo cluster`: the servers that share the store."""

from __future__ import annotations

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.latency import render_us
from schedo.cli.tables import print_json, print_table
from schedo.client.messages import Record
from schedo.client.sync import Client

_HEADERS = (
    "NO",
    "NAME",
    "STATE",
    "SHARDS",
    "HEARTBEAT",
    "CLOCK",
    "REACHABLE",
    "VERSION",
    "EPOCH",
    "URL",
)


@click.command()
@as_json
@connected
def cluster(client: Client, is_json: bool) -> None:
    """List the servers that share the store in PostgreSQL, and how many shards each owns.

    HEARTBEAT is how long ago the last one was. CLOCK is by how much the clock of a server's
    machine is ahead of that of the database, which all jobs follow; a ms is no difference.
    REACHABLE says whether the server that was asked, which has a star, can send requests to the
    other one; for itself, whether nothing else responds at its URL. EPOCH numbers the starts and
    the recoveries of all servers: the server with the highest one has started or recovered last.
    """
    found = client.get_cluster()
    if is_json:
        print_json(found)
        return
    if not found["members"]:
        click.echo("the store is a file, so this server is alone", err=True)
        return
    print_table(
        _HEADERS,
        [_row(member, is_asked=member["number"] == found["me"]) for member in found["members"]],
        optional=("VERSION", "EPOCH", "CLOCK"),
    )
    for member in found["members"]:
        if "problem" in member:
            click.echo(f"schedo: {member['problem']}", err=True)
    if found["unowned"]:
        click.echo(f"schedo: {len(found['unowned'])} shards have no owner now", err=True)


def _render_clock(member: Record) -> str:
    ahead_us = member.get("clock_ahead_us")
    if ahead_us is None or not ahead_us:
        return "-"
    return f"{'+' if ahead_us > 0 else '-'}{render_us(abs(ahead_us))}"


def _row(member: Record, *, is_asked: bool) -> tuple[str, ...]:
    silent_us = member["silent_us"]
    return (
        f"{member['number']}{'*' if is_asked else ''}",
        member["name"],
        member["state"],
        str(len(member["shards"])),
        "gone" if silent_us is None else render_us(silent_us),
        _render_clock(member),
        "yes" if member["reachable"] else "no",
        member["version"],
        str(member["epoch"]),
        member["url"] or "-",
    )
