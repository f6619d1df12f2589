"""What `schedo status` shows of a server whose store is no file here: it asks over the API."""

from __future__ import annotations

from collections.abc import Iterator

from schedo.cli.sizes import render_size
from schedo.cli.tables import print_facts, print_json
from schedo.cli.times import read_now, render_span, render_time
from schedo.client import monitoring_operations, operations
from schedo.client.messages import Record
from schedo.client.sync import Client

_TABLES_SHOWN = 5  # the largest


def show_served(client: Client, url: str, *, is_json: bool) -> bool:
    """Print the status of the server; return whether it is ready."""
    readiness = client.send(operations.get_readiness())
    summary = client.send(monitoring_operations.get_summary())
    store = client.send(monitoring_operations.get_store())
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
            ("epoch", str(summary["epoch"])),
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
