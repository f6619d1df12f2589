"""`schedo export`: writes schedules, expectations and queues as a file for `schedo apply`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.declaration_files import (
    KINDS,
    export_expectation,
    export_schedule,
    name_owner,
)
from schedo.cli.errors import Failure
from schedo.cli.escapes import escape
from schedo.cli.new_file import new_file
from schedo.cli.toml_text import NotInTomlError, render_toml
from schedo.client import expectation_operations
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.model import Queue
from schedo.protocol.declarations import show_queue

_DEFAULTS = show_queue(Queue(""))


@click.command()
@click.argument("path", metavar="[FILE]", required=False)
@click.option("--force", "is_forced", is_flag=True, help="Replace FILE if it exists.")
@as_json
@connected
def export(client: Client, path: str | None, is_forced: bool, is_json: bool) -> None:
    """Write schedules, named expectations and the settings of queues, for `schedo apply`.

    They go to FILE; without it, or if it is -, to stdout.

    The form is TOML; for a name that ends in .json, or with --json, it is JSON. Schedules that the
    code of an application declares are left out: the code itself is their file.
    """
    path = None if path == "-" else path  # apply reads - as stdin
    schedules = list(client.list_schedules())
    kept = [each for each in schedules if not each["owner"].startswith("code:")]
    expectations = client.send(expectation_operations.list_expectations())
    owners = _find_owners([*kept, *expectations])
    document = {
        "owner": owners[0] if len(owners) == 1 else name_owner(path),
        "schedules": {each["name"]: export_schedule(each) for each in kept},
        "queues": dict(filter(None, map(_export_queue, client.list_queues()))),
        "expectations": {each["name"]: export_expectation(each) for each in expectations},
    }
    text = _render(document, is_json=is_json or bool(path and path.endswith(".json")))
    if path is None:
        click.echo(text.encode(), nl=False)  # UTF-8, which apply reads, whatever stdout has
    else:
        with new_file(Path(path), is_replacing=is_forced) as temporary:
            temporary.write_text(text, "utf-8")
    _report(document, path, [each for each in schedules if each not in kept])


def _find_owners(records: Sequence[Record]) -> list[str]:
    """Return the files that declare the records, so that an export keeps the owner of one."""
    return sorted({each["owner"] for each in records if each["owner"].startswith("file:")})


def _export_queue(queue: Record) -> tuple[str, Record] | None:
    """Return the name of a queue and its settings, if they are not the defaults."""
    settings = {n: queue[n] for n, default in _DEFAULTS.items() if queue.get(n) != default}
    return (queue["name"], settings) if settings else None


def _render(document: dict[str, Any], *, is_json: bool) -> str:
    if is_json:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        return render_toml(document)
    except NotInTomlError as error:
        raise Failure(f"{error}; export to a file whose name ends in .json") from error


def _report(document: dict[str, Any], path: str | None, declared: Sequence[Record]) -> None:
    if path is not None:
        found = ((kind.removesuffix("s"), len(document[kind])) for kind in KINDS)
        counts = (f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in found)
        click.echo(f"{escape(path)}: {', '.join(counts)}", err=True)
    if declared:
        names = ", ".join(f"{each['name']} ({each['owner']})" for each in declared)
        click.echo(f"schedo: left out, because code declares them: {escape(names)}", err=True)
