"""`schedo crontab import`: makes a schedule of each entry of a crontab, and reports other lines.

A second import of the same file changes nothing, because an entry's name follows from its command.
As under cron, a command has no retries, and a run does not wait for the previous one (--overlap
changes that). Unlike cron, the server catches up a run that it missed while it was down (--catchup
skip changes that).
"""

from __future__ import annotations

import os
import pwd
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.crontab import (
    CrontabEntry,
    CrontabFile,
    CrontabProblem,
    is_anacrontab,
    parse_crontab,
    slug_source,
)
from schedo.cli.crontab_format import is_system_crontab
from schedo.cli.errors import explain
from schedo.cli.escapes import escape
from schedo.cli.job_text import describe_effect
from schedo.cli.tables import print_json
from schedo.cli.times import read_now, render_full
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.model import BY_HAND, Rule
from schedo.core.timezones import check_zone, load_zone
from schedo.core.triggers import next_after
from schedo.errors import Invalid, NotFound, SchedoError
from schedo.protocol.times import render_instant

_BYTES_MAX = 1_048_576


class _Imported(NamedTuple):
    """An entry that became a schedule, or would become one without --dry-run."""

    entry: CrontabEntry
    name: str
    next_fire: str | None
    effect: str | None  # in words; None: a dry run
    tz: str


class _Stale(NamedTuple):
    """A schedule of an earlier import whose entry is no longer in the file."""

    name: str
    is_deleted: bool


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
    "--dry-run", "is_dry", is_flag=True, help="Only print the schedules that would be created."
)
@click.option(
    "--prune",
    "is_pruning",
    is_flag=True,
    help="Delete schedules of earlier imports whose lines are no longer in FILE.",
)
@click.option("--tz", help="Time zone of lines without CRON_TZ.  [default: this machine's]")
@click.option("--prefix", default="", help="Prefix of the name of each schedule.")
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
    """Create or update a schedule for each entry of the crontab FILE (- is stdin).

    The exit code is 1 if a line could not be imported.
    """
    if is_dry and is_pruning:
        raise click.UsageError("give either --dry-run or --prune, not both")
    tz, prefix = options.pop("tz"), options.pop("prefix")
    zone = _check(tz) if tz else find_local_zone()
    file = _parse(_read(path), path, is_system)
    mark, owner = {"crontab": _origin(path)}, _owner(path)
    taken, problems = [], list(file.problems)
    for entry in file.entries:
        name = prefix + entry.name
        spec = {**build_spec(entry, zone), "meta": mark, **options}
        try:
            taken.append(
                _plan(entry, name, spec) if is_dry else _put(client, entry, name, spec, owner)
            )
        except SchedoError as error:
            if error.code in ("unreachable", "unauthorized"):
                raise
            problems.append(CrontabProblem(entry.line_number, entry.command, explain(error)))
    stale = [] if is_dry else _find_stale(client, path, prefix, file.names)
    if is_pruning:
        stale = [_prune(client, item) for item in stale]
    _report(taken, problems, stale, is_json)
    if any(not problem.is_notice for problem in problems):
        click.get_current_context().exit(1)


def _origin(path: str) -> str:
    """Return the file's absolute path, which schedules keep in `meta.crontab`."""
    absolute = path if path == "-" else os.path.abspath(path)
    return absolute.encode("utf-8", "replace").decode()


def _owner(path: str) -> str:
    host = socket.gethostname()
    return f"crontab:{host}/{_origin(path).removeprefix('/')}"


def _find_stale(client: Client, path: str, prefix: str, names: set[str]) -> list[_Stale]:
    """Return schedules of earlier imports, with the same prefix, whose entries are gone."""
    kept = {prefix + name for name in names}
    start = f"{prefix}{slug_source(_source(path))}."
    return [
        _Stale(schedule["name"], is_deleted=False)
        for schedule in client.list_schedules()
        if schedule["name"].startswith(start)
        and schedule["name"] not in kept
        and _is_imported(schedule, path)
    ]


def _is_imported(schedule: Record, path: str) -> bool:
    """Whether the schedule is of this file; earlier versions wrote no owner, only `meta`."""
    if schedule["owner"] != BY_HAND:
        return bool(schedule["owner"] == _owner(path))
    return (schedule.get("meta") or {}).get("crontab") == _origin(path)


def _prune(client: Client, stale: _Stale) -> _Stale:
    with suppress(NotFound):  # another client has deleted it meanwhile
        client.delete_schedule(stale.name)
    return stale._replace(is_deleted=True)


def _source(path: str) -> str:
    return "crontab" if path == "-" else path


def _check(tz: str) -> str:
    try:
        check_zone(tz)
    except Invalid as error:
        raise click.BadParameter(error.problems[0].detail, param_hint="--tz") from error
    return tz


def _read(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_BYTES_MAX + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _BYTES_MAX:
        raise click.BadParameter(f"{path} is larger than {_BYTES_MAX} bytes; it is not a crontab")
    return data.decode("utf-8", "surrogateescape")


def _parse(text: str, path: str, is_system: bool | None) -> CrontabFile:
    if is_anacrontab(text):
        raise click.BadParameter(
            f"{path} is an anacrontab (period, delay, identifier, command), not a crontab; create"
            " a schedule for each line: schedo schedules put NAME --cron @daily -- COMMAND"
        )
    source = _source(path)
    me = pwd.getpwuid(os.getuid()).pw_name
    if is_system is None:
        is_system = is_system_crontab(path, text)
    return parse_crontab(text, system=is_system, source=source, current_user=me)


def find_local_zone(root: str = "/") -> str:
    """Return the name of the machine's time zone, which cron uses; UTC if it is not known."""
    return next(filter(None, map(_zone_or_none, _zone_candidates(root))), "UTC")


def _zone_candidates(root: str) -> Iterator[str]:
    yield os.environ.get("TZ", "").removeprefix(":")
    link = os.path.realpath(os.path.join(root, "etc/localtime"))
    yield link.partition("/zoneinfo/")[2]
    try:
        yield Path(root, "etc/timezone").read_text("utf-8").strip()
    except (OSError, ValueError):
        return


def _zone_or_none(name: str) -> str | None:
    try:
        check_zone(name)
    except Invalid:
        return None
    return name


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


def _plan(entry: CrontabEntry, name: str, spec: dict[str, Any]) -> _Imported:
    fire = next_after(Rule(cron=spec["cron"], tz=spec["tz"]), read_now())
    return _Imported(entry, name, None if fire is None else render_instant(fire), None, spec["tz"])


def _put(
    client: Client, entry: CrontabEntry, name: str, spec: dict[str, Any], owner: str
) -> _Imported:
    schedule, _ = client.put_schedule(name, owner=owner, **spec)
    for warning in schedule.get("warnings") or []:
        place = f"line {entry.line_number}: {name}"
        click.echo(f"schedo: warning: {escape(f'{place}: {warning}')}", err=True)
    fires = schedule.get("next_fires") or [None]
    return _Imported(entry, name, fires[0], describe_effect(schedule), spec["tz"])


def _report(
    taken: list[_Imported], problems: list[CrontabProblem], stale: list[_Stale], is_json: bool
) -> None:
    refused = [problem for problem in problems if not problem.is_notice]
    if is_json:
        notices = [_problem_record(problem) for problem in problems if problem.is_notice]
        print_json(
            {
                "schedules": [_imported_record(item) for item in taken],
                "refused": [_problem_record(problem) for problem in refused],
                "notices": notices,
                "stale": [{"name": item.name, "deleted": item.is_deleted} for item in stale],
            }
        )
        return
    lines = [(item.entry.line_number, 0, _imported_line(item)) for item in taken]
    lines += [
        (problem.line_number, 1, f"{'note' if problem.is_notice else 'refused'}: {problem.reason}")
        for problem in problems
    ]
    for number, _, text in sorted(lines):
        click.echo(f"line {number}: {escape(text)}")
    for item in stale:
        done = "deleted" if item.is_deleted else f"(schedo schedules rm {item.name})"
        click.echo(f"no longer in the file: {escape(f'{item.name} {done}')}")
    zones = ", ".join(sorted({item.tz for item in taken}))
    times = f"; times are in {zones}" if taken else ""
    is_dry = any(item.effect is None for item in taken)
    done = "would be imported" if is_dry else "imported"
    click.echo(f"{len(taken)} {done}, {len(refused)} refused{times}")


def _imported_line(item: _Imported) -> str:
    fire = "never"
    if item.next_fire is not None:
        fire = render_full(item.next_fire, read_now(), load_zone(item.tz))
    return f"{item.name} {item.effect or 'would be stored'}; next fire {fire}"


def _imported_record(item: _Imported) -> Record:
    return {
        "line": item.entry.line_number,
        "name": item.name,
        "cron": item.entry.cron,
        "tz": item.tz,
        "user": item.entry.user,
        "command": item.entry.command,
        "next_fire": item.next_fire,
        "effect": item.effect,
    }


def _problem_record(problem: CrontabProblem) -> Record:
    return {"line": problem.line_number, "text": problem.text, "reason": problem.reason}
