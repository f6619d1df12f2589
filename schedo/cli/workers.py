"""`schedo workers`: lists, shows, cordons and drains workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.names import WORKER
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_time
from schedo.client.messages import Record
from schedo.client.sync import Client

_ANY = "any"
_HEADERS = (
    *("NAME", "STATE", "BUSY", "TASKS", "QUEUES", "LABELS", "RESOURCES USED", "LAST SEEN"),
    "SERVER",  # in a cluster
)


@click.group()
def workers() -> None:
    """List, cordon and drain workers."""


def _print(found: Sequence[Record]) -> None:
    now = read_now()
    rows = [
        (
            worker["name"],
            worker.get("state", ""),
            f"{worker.get('running', 0)}/{worker.get('slots', 0)}",
            _join(worker.get("tasks")),
            _join(worker.get("queues")),
            _pairs(worker.get("labels")),
            _resources(worker),
            render_time(worker.get("last_seen_at"), now),
            worker.get("server", ""),
        )
        for worker in found
    ]
    shown = len(_HEADERS) - (not any("server" in worker for worker in found))
    optional = ("QUEUES", "RESOURCES USED", "LABELS")
    compact = {"LAST SEEN": keep_distance}
    print_table(_HEADERS[:shown], [row[:shown] for row in rows], compact, optional=optional)


def _join(names: list[str] | None) -> str:
    return _ANY if names is None else ",".join(names) or "-"


def _pairs(pairs: dict[str, Any] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (pairs or {}).items()) or "-"


def _resources(worker: Record) -> str:
    used = worker.get("resources_used") or {}
    has = worker.get("resources") or {}
    return " ".join(f"{name}={used.get(name, 0)}/{has[name]}" for name in has) or "-"


@workers.command("ls")
@as_json
@connected
def list_(client: Client, is_json: bool) -> None:
    """List workers with their tasks, queues, labels and resources."""
    records = client.list_workers()
    print_json(records) if is_json else _print(records)


@workers.command()
@click.argument("name", type=WORKER)
@as_json
@connected
def show(client: Client, name: str, is_json: bool) -> None:
    """Show all fields of a worker, and the jobs that it runs."""
    worker = client.get_worker(name)
    if is_json:
        print_json(worker)
        return
    runs = worker.pop("runs", [])
    shown = {
        **worker,
        "tasks": _join(worker.get("tasks")),
        "queues": _join(worker.get("queues")),
        "labels": _pairs(worker.get("labels")),
        "resources": _pairs(worker.get("resources")),
        "resources_used": _pairs(worker.get("resources_used")),
    }
    print_facts((name, "-" if value is None else str(value)) for name, value in shown.items())
    if runs:
        click.echo()
        now = read_now()
        rows = [(run["job"], run["task"], render_time(run["started_at"], now)) for run in runs]
        print_table(("JOB", "TASK", "STARTED"), rows, {"STARTED": keep_distance})


def _acting(name: str, help_text: str, act: Callable[[Client, str], Record]) -> None:
    """Add a command that changes one worker and shows it."""

    @workers.command(name, help=help_text)
    @click.argument("name", type=WORKER)
    @as_json
    @connected
    def command(client: Client, name: str, is_json: bool) -> None:
        worker = act(client, name)
        print_json(worker) if is_json else _print([worker])


_acting("cordon", "Give the worker no new jobs; its running jobs continue.", Client.cordon_worker)
_acting("uncordon", "Give the worker new jobs again.", Client.uncordon_worker)
_acting(
    "drain",
    "Stop the worker when its running jobs have ended. It gets no new jobs.",
    Client.drain_worker,
)
