"""What `schedo status` shows of a server whose store is no file here: it asks over the API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from schedo.cli.sizes import render_size
from schedo.cli.tables import print_facts, print_json
from schedo.cli.times import read_now, render_span, render_time
from schedo.client import monitoring_operations, operations
from schedo.client.errors import Unreachable
from schedo.client.messages import TIMEOUT_S, Record
from schedo.client.sync import Client
from schedo.errors import Unavailable

STUCK_AFTER_S = 3.0  # of silence, as of a server that is asked by its control socket
_TABLES_SHOWN = 5  # the largest


def _ask_readiness(client: Client, url: str) -> Record:
    """Return what the server says of itself at once, also while its database is away."""
    try:
        return client.send(operations.get_readiness())
    except Unreachable as error:
        if not isinstance(error.__cause__, TimeoutError):
            raise
        raise Unavailable(
            f"the server at {url} does not answer within {STUCK_AFTER_S:.0f} s: it is stuck,"
            " stopped by SIGSTOP, or cut off; docs/operations.md (Standby) says how to find out"
        ) from error


def show_served(client: Client, url: str, *, is_json: bool) -> bool:
    """Print the status of the server; return whether it is ready.

    client: one that waits for STUCK_AFTER_S. Only the first response must come within that time.
    """
    readiness = _ask_readiness(client, url)
    summary = client.send(replace(monitoring_operations.get_summary(), held_s=TIMEOUT_S))
    store = client.send(replace(monitoring_operations.get_store(), held_s=TIMEOUT_S))
    is_ready, reasons = bool(readiness["ready"]), readiness.get("reasons", [])
    notes = readiness.get("notes", [])
    if is_json:
        kept = ("version", "epoch", "started_at")
        facts = {name: summary[name] for name in kept}
        facts |= {"is_ready": is_ready, "reasons": reasons, "notes": notes}
        print_json({**facts, "store": store})
        return is_ready
    now = read_now()
    since = render_time(summary["started_at"], now)
    print_facts(
        [
            ("active", f"schedo {summary['version']}, since {since}"),
            ("epoch", str(summary["epoch"] or "none, until the store responds")),
            ("store", render_size(store["bytes"])),
            ("address", url),
            ("ready", "yes" if is_ready else f"NO: {'; '.join(reasons)}"),
            *(("note", note) for note in notes),
            *_describe(store, now),
        ]
    )
    return is_ready


def _describe(store: Record, now: int) -> Iterator[tuple[str, str]]:
    if store["tables"]:
        yield "oldest", _describe_transaction(store["oldest_snapshot"])
        yield "longest", _describe_transaction(store["longest_transaction"])
    largest = sorted(store["tables"], key=lambda table: -table["size_bytes"])
    for table in largest[:_TABLES_SHOWN]:
        vacuumed_at = table["vacuumed_at"]
        vacuum = f"vacuumed {render_time(vacuumed_at, now)}" if vacuumed_at else "never vacuumed"
        dead = f"{table['dead_rows']:,} dead beside {table['live_rows']:,} rows"
        yield "table", f"{table['name']}, {render_size(table['size_bytes'])}, {dead}, {vacuum}"


def _describe_transaction(found: Record | None) -> str:
    if found is None:
        return "no transaction"
    pid = "" if found["pid"] is None else f" (pid {found['pid']})"
    age_s = found["age_seconds"]
    age = "" if age_s is None else f", for {render_span(round(age_s * 1_000_000))}"
    behind = f"{found['transactions']:,} transactions behind"
    return f"{found['kind']} {found['name']}{pid}{age}, {behind}"
