"""`schedo crontab import`: makes a schedule of each entry of a crontab, and reports other lines.

A second import of the same file changes nothing, because an entry's name follows from its command.
As under cron, a command has no retries, and a run does not wait for the previous one (--overlap
changes that). Unlike cron, the server catches up a run that it missed while it was down (--catchup
skip changes that).
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.crontab import (
    CrontabEntry,
    CrontabFile,
    CrontabProblem,
    parse_crontab,
)
from schedo.cli.crontab_sources import CrontabSource, read_sources
from schedo.cli.errors import explain
from schedo.cli.escapes import escape
from schedo.cli.job_text import describe_effect
from schedo.cli.local_zone import find_local_zone
from schedo.cli.tables import print_json
from schedo.cli.times import read_now, render_full
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.model import Rule
from schedo.core.timezones import check_zone, load_zone
from schedo.core.triggers import next_after
from schedo.errors import Invalid, NotFound, SchedoError
from schedo.protocol.cron import list_warnings
from schedo.protocol.times import render_instant

_DELETED = "deleted"


class _Imported(NamedTuple):
    """An entry that became a schedule, or would become one without --dry-run."""

    path: str
    entry: CrontabEntry
    next_fire: str | None
    effect: str | None  # in words; None: a dry run
    tz: str


class _Problem(NamedTuple):
    """A line that was not imported, or a notice, and its file."""

    path: str
    problem: CrontabProblem


class _Stale(NamedTuple):
    """A schedule of an earlier import whose entry is no longer in the file."""

    name: str
    effect: str | None  # in words; None: it stays


@click.group()
def crontab() -> None:
    """Import a crontab as schedules."""


@crontab.command("import")
@click.argument("path", metavar="FILE")
@click.option(
    "--system/--user-format",
    "is_system",
    default=None,
    help="Whether each line names a user, as in /etc/crontab.  [default: detected]",
)
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="Only print what would be created; with --prune, also what would be deleted.",
)
@click.option(
    "--prune",
    "is_pruning",
    is_flag=True,
    help="Delete the schedules of earlier imports of FILE, or with --name, whose lines are gone.",
)
@click.option("--tz", help="Time zone of lines without CRON_TZ.  [default: this machine's]")
@click.option(
    "--name",
    help="What the names of the schedules begin with, and their owner; needed for stdin."
    "  [default: the name of FILE]",
)
@click.option("--overlap", default="allow", show_default=True, help="Overlap policy.")
@click.option("--catchup", default="latest", show_default=True, help="Catch-up policy.")
@as_json
@connected
def import_(
    client: Client,
    path: str,
    is_system: bool | None,
    is_dry: bool,
    is_pruning: bool,
    is_json: bool,
    **options: Any,
) -> None:
    """Create or update a schedule for each entry of a crontab.

    FILE is a crontab; - is stdin. It may also be a directory of crontabs, such as /etc/cron.d, or
    of scripts, such as /etc/cron.daily. The exit code is 1 if a line could not be imported.
    """
    tz = options.pop("tz")
    zone = _check(tz) if tz else find_local_zone()
    found = read_sources(path, options.pop("name"), is_system)
    taken, problems = [], [_Problem(each.text, each) for each in found.ignored]
    names: set[str] = set()
    for source in found.sources:
        file = _parse(source)
        problems += [_Problem(source.path, problem) for problem in file.problems]
        for entry in file.entries:
            spec = {**build_spec(entry, zone), "meta": _describe_origin(source), **options}
            try:
                _check_name(entry.name, names)
                taken.append(
                    _plan(source, entry, spec)
                    if is_dry
                    else _put(client, source, entry, spec, found.owner)
                )
            except SchedoError as error:
                if error.code in ("unreachable", "unauthorized"):
                    raise
                problem = CrontabProblem(entry.line_number, entry.command, explain(error))
                problems.append(_Problem(source.path, problem))
        names |= file.names
    # A dry run alone needs no server.
    stale = _find_stale(client, found.owner, names) if is_pruning or not is_dry else []
    if is_pruning:
        stale = [
            item._replace(effect="would be deleted") if is_dry else _prune(client, item)
            for item in stale
        ]
    if is_json:
        _print_as_json(taken, problems, stale)
    else:
        _report(taken, problems, stale, is_dry)
    if any(not each.problem.is_notice for each in problems):
        click.get_current_context().exit(1)


def _describe_origin(source: CrontabSource) -> Record:
    path = source.path if source.path == "-" else os.path.abspath(source.path)
    return {"crontab": path.encode("utf-8", "replace").decode()}


def _check_name(name: str, others: set[str]) -> None:
    if name in others:  # of two files whose names begin alike and that have the same line
        raise Invalid(f"another file of this import has an entry of the name {name}")


def _find_stale(client: Client, owner: str, kept: set[str]) -> list[_Stale]:
    """Return the schedules of earlier imports whose entries are gone."""
    return [
        _Stale(schedule["name"], None)
        for schedule in client.list_schedules()
        if schedule["owner"] == owner and schedule["name"] not in kept
    ]


def _prune(client: Client, stale: _Stale) -> _Stale:
    with suppress(NotFound):  # another client has deleted it meanwhile
        client.delete_schedule(stale.name)
    return stale._replace(effect=_DELETED)


def _check(tz: str) -> str:
    try:
        check_zone(tz)
    except Invalid as error:
        raise click.BadParameter(error.problems[0].detail, param_hint="--tz") from error
    return tz


def _parse(source: CrontabSource) -> CrontabFile:
    me = pwd.getpwuid(os.getuid()).pw_name
    return parse_crontab(
        source.text, system=source.is_system, source=source.prefix, current_user=me
    )


def build_spec(entry: CrontabEntry, zone: str) -> dict[str, Any]:
    """Return the fields of a schedule that runs the entry as cron would."""
    environment = {name: value for name, value in entry.environment.items() if name != "SHELL"}
    payload: dict[str, Any] = {"command": entry.command, "shell": entry.shell, "env": environment}
    if entry.stdin is not None:
        payload["stdin"] = entry.stdin
    if environment.get("HOME"):  # where cron starts its commands
        payload["cwd"] = environment["HOME"]
    spec = {"cron": entry.cron, "tz": entry.tz or zone, "task": "shell", "payload": payload}
    return {**spec, "retry": "none"}


def _plan(source: CrontabSource, entry: CrontabEntry, spec: Record) -> _Imported:
    _warn(entry, list_warnings(entry.cron, entry.name))
    fire = next_after(Rule(cron=spec["cron"], tz=spec["tz"]), read_now())
    shown = None if fire is None else render_instant(fire)
    return _Imported(source.path, entry, shown, None, spec["tz"])


def _put(
    client: Client, source: CrontabSource, entry: CrontabEntry, spec: Record, owner: str
) -> _Imported:
    schedule, _ = client.put_schedule(entry.name, owner=owner, **spec)
    _warn(entry, schedule.get("warnings") or [])
    fires = schedule.get("next_fires") or [None]
    return _Imported(source.path, entry, fires[0], describe_effect(schedule), spec["tz"])


def _warn(entry: CrontabEntry, warnings: Iterable[str]) -> None:
    for warning in warnings:
        place = f"line {entry.line_number}: {entry.name}"
        click.echo(f"schedo: warning: {escape(f'{place}: {warning}')}", err=True)


def _print_as_json(taken: list[_Imported], problems: list[_Problem], stale: list[_Stale]) -> None:
    print_json(
        {
            "schedules": [_imported_record(item) for item in taken],
            "refused": [_problem_record(each) for each in problems if not each.problem.is_notice],
            "notices": [_problem_record(each) for each in problems if each.problem.is_notice],
            "stale": [{"name": item.name, "deleted": item.effect == _DELETED} for item in stale],
        }
    )


def _report(
    taken: list[_Imported], problems: list[_Problem], stale: list[_Stale], is_dry: bool
) -> None:
    lines = [(item.path, item.entry.line_number, 0, _imported_line(item)) for item in taken]
    lines += [(path, problem.line_number, 1, _problem_line(problem)) for path, problem in problems]
    is_one_file = len({path for path, *_ in lines}) == 1
    for path, number, _, text in sorted(lines):
        # A whole file has no number.
        place = path if not number else f"line {number}" if is_one_file else f"{path}:{number}"
        click.echo(escape(f"{place}: {text}"))
    for item in stale:
        done = item.effect or f"(schedo schedules rm {item.name})"
        click.echo(f"no longer in the file: {escape(f'{item.name} {done}')}")
    zones = ", ".join(sorted({item.tz for item in taken}))
    times = f"; times are in {zones}" if taken else ""
    done = "would be imported" if is_dry else "imported"
    refused = sum(not each.problem.is_notice for each in problems)
    click.echo(f"{len(taken)} {done}, {refused} refused{times}")


def _imported_line(item: _Imported) -> str:
    fire = "never"
    if item.next_fire is not None:
        fire = render_full(item.next_fire, read_now(), load_zone(item.tz))
    return f"{item.entry.name} {item.effect or 'would be stored'}; next fire {fire}"


def _problem_line(problem: CrontabProblem) -> str:
    return f"{'note' if problem.is_notice else 'refused'}: {problem.reason}"


def _imported_record(item: _Imported) -> Record:
    return {
        "file": item.path,
        "line": item.entry.line_number,
        "name": item.entry.name,
        "cron": item.entry.cron,
        "tz": item.tz,
        "user": item.entry.user,
        "command": item.entry.command,
        "next_fire": item.next_fire,
        "effect": item.effect,
    }


def _problem_record(found: _Problem) -> Record:
    path, problem = found
    return {
        "file": path,
        "line": problem.line_number,
        "text": problem.text,
        "reason": problem.reason,
    }
