"""`schedo status`: the active server of a store and its standbys, by the control socket."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from schedo.cli.connection import as_json, server_options, telling_unreadable
from schedo.cli.errors import BadConfiguration
from schedo.cli.make_client import make_client
from schedo.cli.serve import config_file, load
from schedo.cli.store_files import path_of
from schedo.cli.tables import print_facts, print_json
from schedo.cli.times import read_now, render_time
from schedo.config_checks import IN_MEMORY
from schedo.errors import Exit, Unavailable
from schedo.store import is_postgres, without_password

if TYPE_CHECKING:
    from schedo.handover.link import LinkLost
    from schedo.handover.messages import Handover, LastTakeover, StandbyStatus, Status

# While the store passes from one process to the next, no server answers for some milliseconds.
_PASSING_S = 0.5
_RETRY_S = 0.02

_OTHER_WAYS = "--store names another store, and `schedo summary` asks a server by its URL"


@click.command()
@click.option("--store", metavar="FILE", help="The store, instead of the configuration's.")
@click.option("--check", "is_check", is_flag=True, help="Exit with 1 unless the server is ready.")
@config_file
@server_options
@as_json
@click.pass_context
def status(
    context: click.Context,
    /,
    store: str | None,
    is_check: bool,
    path: str | None,
    is_json: bool,
    **server: Any,
) -> None:
    """Show the active server of a store, its standbys and its last take-over.

    This asks the server on this machine, by the control socket beside the store, as the same user.
    A server that does not answer within 3 s is stuck: the exit code is 1 then, as without a server.
    Without --store, and with a store in PostgreSQL or in memory in the configuration, or with none
    here, it asks the server at --url, with the same limit, and shows the state of the tables in
    PostgreSQL.
    """
    configured = load(path, {"store": store}).store
    if store is not None and is_postgres(store):
        raise BadConfiguration(
            f"{without_password(store)} is not a file; leave --store out, and give --url: a server"
            " whose jobs are in PostgreSQL is asked by its URL"
        )
    if store is None and not _is_file_here(configured):
        if not _ask_server(**server, is_json=is_json) and is_check:
            context.exit(Exit.REFUSED)
        return
    found = _read(configured)
    if is_json:
        print_json(msgspec.to_builtins(found))
    else:
        _print(found)
    if is_check and not found.is_ready:
        context.exit(Exit.REFUSED)


def _is_file_here(store: str) -> bool:
    if store in IN_MEMORY or is_postgres(store):
        return False
    return any(os.path.exists(path_of(store) + suffix) for suffix in ("", ".lock"))


def _ask_server(url: str, token_file: str | None, *, is_json: bool) -> bool:
    """Show the server at the URL; return whether it is ready."""
    from schedo.cli.served_status import STUCK_AFTER_S, show_served
    from schedo.client.sync import Client

    kind = partial(Client, agent="schedo-cli", timeout=STUCK_AFTER_S)
    with make_client(kind, url, token_file) as client, telling_unreadable(client):
        return show_served(client, url, is_json=is_json)


def _read(store: str) -> Status:
    from schedo.handover.client import read_status
    from schedo.handover.link import LinkLost
    from schedo.handover.socket_file import SUFFIX

    path = os.path.realpath(path_of(store))
    until = time.monotonic() + _PASSING_S * os.path.exists(path + ".lock")
    while True:
        try:
            return asyncio.run(read_status(path + SUFFIX))
        except LinkLost as error:
            if time.monotonic() > until:
                raise Unavailable(_describe_missing(error, path + ".lock")) from error
        time.sleep(_RETRY_S)


def _describe_missing(error: LinkLost, lock_path: str) -> str:
    from schedo.store.sqlite.lock import find_living, read_holder

    living = find_living(lock_path)
    if living is not None:
        return (
            f"{error}; but pid {living}, the last one that has locked the store, runs: it is"
            " starting, for instance importing its application, or its log says why it has no"
            f" control socket; {_OTHER_WAYS}"
        )
    holder = read_holder(lock_path)
    last = "" if holder is None else f"; the last holder of the store was pid {holder}"
    return f"the store has no active server: {error}{last}; {_OTHER_WAYS}"


def _print(found: Status) -> None:
    now = read_now()
    facts = [
        ("active", f"{_describe(found.pid, found.version)}, since {render_time(found.since, now)}"),
        ("epoch", str(found.epoch)),
        ("store", found.store),
        ("address", ", ".join(found.addresses)),
        ("ready", "yes" if found.is_ready else f"NO: {'; '.join(found.reasons)}"),
        *(("note", note) for note in found.notes),
        ("take-overs", str(found.takeovers)),
    ]
    if found.last_takeover is not None:
        facts.append(("last", _describe_takeover(found.last_takeover, now)))
    if found.handover is not None:
        facts.append(("handover", _describe_handover(found.handover)))
    facts += [("standby", _describe_standby(each, now)) for each in found.standbys]
    if not found.standbys:
        facts.append(("standby", "none"))
    print_facts(facts)


def _describe(pid: int, version: str) -> str:
    return f"pid {pid}, schedo {version}"


def _describe_takeover(takeover: LastTakeover, now: int) -> str:
    steps = ", ".join(f"{name} {ms:.1f}" for name, ms in takeover.steps_ms.items())
    before = "was killed" if takeover.was_killed else "ended in order"
    return (
        f"{render_time(takeover.at, now)}, {takeover.took_ms:.1f} ms from the lock to the first"
        f" request ({steps}); the server before {before}"
    )


def _describe_handover(handover: Handover) -> str:
    to = "a standby" if handover.pid is None else f"process {handover.pid}"
    return f"the store passes to {to}; the last step of this one: {handover.step}"


def _describe_standby(standby: StandbyStatus, now: int) -> str:
    warmth = "not warm yet"
    if standby.is_warm and standby.warmed_ms is not None:
        warmth = f"warm (took {standby.warmed_ms:.0f} ms)"
    kills = "" if standby.kill_stuck_s is None else f", kills after {standby.kill_stuck_s:g} s"
    parts = [
        f"{_describe(standby.pid, standby.version)}, {warmth}{kills},"
        f" since {render_time(standby.since, now)}",
        *standby.notes,
    ]
    return "; ".join(parts)
