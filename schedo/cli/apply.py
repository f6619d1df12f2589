"""`schedo apply`: makes schedules, expectations and queues those that files declare."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.declaration_files import KINDS, DeclarationFile, read_declaration
from schedo.cli.escapes import escape
from schedo.cli.tables import print_json, print_text
from schedo.cli.toml_text import render_key
from schedo.client import schedule_operations
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.errors import Exit, Invalid

_WORDS = {"unchanged": "up to date"}


@click.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--diff",
    "is_diff",
    is_flag=True,
    help=f"Only show what would change; the exit code is {Exit.DIFFERENT} if anything would.",
)
@click.option(
    "--prune",
    "is_pruning",
    is_flag=True,
    help="Delete schedules and expectations that an earlier apply of FILE put and that are no"
    " longer in it.",
)
@as_json
@connected
def apply(
    client: Client, paths: tuple[str, ...], is_diff: bool, is_pruning: bool, is_json: bool
) -> None:
    """Create and change schedules and named expectations, and set queues, as each FILE says.

    A FILE is TOML or JSON; - is stdin. All files are checked before the first change. The schedules
    of a file change in one commit, or none of them does; so do its expectations, before. They then
    belong to the file: its `owner`, by default its absolute path.
    `schedo export` writes such a file.
    """
    files = [read_declaration(path) for path in paths]
    _check_names(files)
    done = [_declare(client, file, prune=is_pruning, dry_run=True) for file in files]
    if not is_diff:
        done = [_declare(client, file, prune=is_pruning, dry_run=False) for file in files]
    if is_json:
        print_json(done)
    else:
        for file, result in zip(files, done, strict=True):
            _report(file, result, is_diff=is_diff)
    if is_diff and any(_count(result)["unchanged"] != _count(result).total() for result in done):
        click.get_current_context().exit(Exit.DIFFERENT)


def _check_names(files: Sequence[DeclarationFile]) -> None:
    """Raise Invalid if two files declare something with the same name, or have one owner."""
    seen: dict[tuple[str, str], str] = {}
    for file in files:
        names = [(kind, name) for kind in KINDS for name in file.entries(kind)]
        for kind, name in [*names, ("owner", file.owner)]:
            other = seen.setdefault((kind, name), file.path)
            if other is not file.path:
                raise Invalid(f"{file.path}: {kind} {name} is in {other} too; nothing was changed")


def _declare(client: Client, file: DeclarationFile, **options: bool) -> Record:
    try:
        return client.send(schedule_operations.declare(file.render(**options)))
    except Invalid as error:
        raise file.locate(error) from error


def _entries(result: Record) -> Iterator[tuple[str, Record]]:
    """Yield the kind and the result of each entry."""
    for kind in KINDS:
        yield from ((kind.removesuffix("s"), each) for each in result[kind])


def _count(result: Record) -> Counter[str]:
    return Counter(each["effect"] for _, each in _entries(result))


def _report(file: DeclarationFile, result: Record, *, is_diff: bool) -> None:
    for kind, each in _entries(result):
        if each["effect"] != "unchanged":
            print_text(
                escape(f"{kind} {each['name']} {_describe(each['effect'], is_diff=is_diff)}")
            )
        for change in each["changes"]:
            for sign, value in (("-", change["before"]), ("+", change["after"])):
                if value is not None:
                    shown = json.dumps(value, ensure_ascii=False)
                    print_text(escape(f"  {sign} {render_key(change['field'])} = {shown}"))
        for warning in each["warnings"]:
            click.echo(
                f"schedo: warning: {kind} {escape(each['name'])}: {escape(warning)}", err=True
            )
    counts = ", ".join(
        f"{number} {_describe(effect, is_diff=is_diff)}"
        for effect, number in _count(result).items()
    )
    print_text(escape(f"{file.path}: {counts or 'nothing is declared'}"))
    undeclared = [*result["undeclared"], *result["undeclared_expectations"]]
    if undeclared:
        names = ", ".join(undeclared)
        click.echo(
            f"schedo: no longer in {escape(file.path)}, but still on the server: {escape(names)};"
            " --prune deletes them",
            err=True,
        )


def _describe(effect: str, *, is_diff: bool) -> str:
    word: Any = _WORDS.get(effect, effect)
    return f"would be {word}" if is_diff and effect != "unchanged" else str(word)
