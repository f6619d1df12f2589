"""`schedo schedules`: lists, shows, makes and changes schedules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from schedo.cli.argv import ArgvCommand, read_command
from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.fires import fires
from schedo.cli.job_options import expect_options, given, shared_options
from schedo.cli.job_text import describe_effect, describe_schedule, render_fact
from schedo.cli.json_text import parse_json
from schedo.cli.local_zone import find_local_zone
from schedo.cli.names import SCHEDULE
from schedo.cli.run_history import (
    describe_last_run,
    failed_in_row,
    print_last_runs,
    render_facts,
    warn_of_failing,
)
from schedo.cli.tables import print_facts, print_json, print_table
from schedo.cli.times import keep_distance, read_now, render_full, render_span, render_time
from schedo.cli.value_types import CRON, DURATION, TIME
from schedo.client import schedule_operations
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.core.schedule_filter import Health
from schedo.protocol.schedules import ScheduleRequest, ScheduleResponse
from schedo.protocol.times import parse_duration

_DECISIONS_SHOWN = 10
_DECISIONS_MAX = 500
EXPECT_FIELDS = ("within", "max_duration", "on_miss", "on_back")
# What `show --json` prints besides the fields of a request, so that `put --file` can read it.
_READ_ONLY = {*ScheduleResponse.__struct_fields__, "decisions"} - {
    *ScheduleRequest.__struct_fields__
}


@click.group()
def schedules() -> None:
    """List and change schedules."""


schedules.add_command(fires)


@schedules.command("ls")
@click.option("--q", metavar="TEXT", help="Only with these words in the name, task or queue.")
@click.option("--failing", is_flag=True, help="Only schedules whose last run has failed.")
@click.option("--paused/--not-paused", default=None, help="Only schedules that are paused.")
@click.option(
    "--health",
    type=click.Choice([each.value for each in Health]),
    help="Only schedules for which this comes first; overdue: what is expected is missed.",
)
@as_json
@connected
def list_(client: Client, failing: bool, is_json: bool, **filters: Any) -> None:
    """List schedules by name, with how the last run of each ended.

    RULE is in the time zone TZ. NEXT and LAST are in that of this machine, as in all tables;
    `schedo schedules fires NAME` lists the fires in the zone of the schedule.
    """
    records = list(client.list_schedules(failing=failing, **given(filters, *filters)))
    if is_json:
        print_json(records)
        return
    now = read_now()
    headers = ("NAME", "RESULT", "FAILS", "RULE", "TZ", "STATE", "NEXT", "LAST", "OWNER", "WORK")
    compact = {"NEXT": keep_distance, "LAST": keep_distance}
    rows = [_row(record, now) for record in records]
    print_table(headers, rows, compact, optional=("TZ", "OWNER", "LAST", "RULE"))
    _note_zone(records)
    if not failing:
        warn_of_failing(records)


def _note_zone(schedules: list[Record]) -> None:
    """Say on stderr in which zone the table has its times, if a rule of it is in another one."""
    zones = {schedule.get("tz", "UTC") for schedule in schedules if "cron" in schedule}
    if zones - {find_local_zone()}:
        note = "RULE is in the time zone TZ, NEXT and LAST are in that of this machine"
        click.echo(f"schedo: {note}", err=True)


def _row(schedule: Record, now: int) -> tuple[str, ...]:
    state = "paused" if schedule.get("paused") else "active"
    if schedule.get("edited"):
        state += ", edited"
    next_fire = next(iter(schedule.get("next_fires") or []), None)
    return (
        schedule["name"],
        describe_last_run(schedule),
        str(failed_in_row(schedule) or "-"),
        render_rule(schedule),
        schedule.get("tz", "UTC"),
        state,
        "-" if schedule.get("paused") else render_time(next_fire, now),
        render_time(schedule.get("last_fired_at"), now),
        schedule["owner"],
        describe_schedule(schedule),
    )


def render_rule(schedule: Mapping[str, Any]) -> str:
    """Return the rule of a schedule as one line of text."""
    if "cron" in schedule:
        return str(schedule["cron"])
    if "every" in schedule:
        return f"every {schedule['every']}"
    return f"at {schedule.get('at', '?')}"


@schedules.command()
@click.argument("name", type=SCHEDULE)
@click.option(
    "--decisions",
    "decisions_shown",
    type=click.IntRange(1, _DECISIONS_MAX),
    default=_DECISIONS_SHOWN,
    show_default=True,
    help="How many of its latest decisions to show.",
)
@as_json
@connected
def show(client: Client, name: str, decisions_shown: int, is_json: bool) -> None:
    """Show all fields of a schedule, its last runs and decisions."""
    record = client.get_schedule(name)
    decisions = client.decisions(name, decisions_shown)
    if is_json:
        print_json({**record, "decisions": decisions})
        return
    now = read_now()
    runs = record.pop("runs", {})
    facts = [
        (field, _render_field(field, value, now)) for field, value in record.items() if value != []
    ]
    facts.sort(key=lambda fact: fact[0] != "name")
    print_facts([*facts, *render_facts(runs, now)])
    print_last_runs(runs.get("last", ()), now)
    if decisions:
        click.echo()
        rows = [
            (
                render_time(decision["scheduled_for"], now),
                decision["decision"],
                str(decision.get("count", 1)),
                decision.get("job", "-"),
            )
            for decision in decisions
        ]
        headers = ("INSTANT", "DECISION", "COUNT", "JOB")
        print_table(headers, rows, {"INSTANT": keep_distance})


def _render_field(field: str, value: Any, now: int) -> str:
    if field == "next_fires":
        return "\n".join(render_full(fire, now) for fire in value)
    if field == "at":
        return render_full(value, now)
    if field == "median_run":
        return render_span(parse_duration(value))
    if field == "warnings":
        return "\n".join(map(str, value))
    return render_fact(field, value, now)


@schedules.command(cls=ArgvCommand)
@click.argument("name", type=SCHEDULE)
@click.argument("command", nargs=-1)
@click.option(
    "--cron", type=CRON, metavar="EXPR", help="Five fields, six with seconds, or @daily etc."
)
@click.option("--every", type=DURATION, help="Fixed interval: 90s, 1h30m.")
@click.option("--at", type=TIME, help="A single time.")
@click.option("--tz", help="Time zone of --cron.  [default: UTC]")
@click.option("--task", help="Task to run instead of a command.")
@click.option("--payload", metavar="JSON", help="Payload of the task.")
@shared_options
@click.option(
    "--overlap",
    metavar="POLICY",
    help="What to do when the previous run has not ended: skip, allow, buffer_one, cancel_other.",
)
@click.option("--catchup", metavar="POLICY", help="Which missed runs to make: latest, all, skip.")
@click.option("--jitter", type=DURATION, help="Delay each run by a random time up to this.")
@expect_options
@click.option("--max-duration", type=DURATION, help="Expect that no run takes longer.")
@click.option("--paused/--not-paused", default=None, help="Whether the schedule is paused.")
@click.option(
    "--file",
    "path",
    metavar="FILE",
    help="Read the fields from a JSON file, such as show --json prints; - is stdin.",
)
@as_json
@connected
def put(
    client: Client,
    name: str,
    command: tuple[str, ...],
    path: str | None,
    is_json: bool,
    **options: Any,
) -> None:
    """Create or replace a schedule.

    For example: schedo schedules put NAME --cron EXPR -- program ...
    """
    spec = _read_file(path) if path else {}
    spec |= _read_options(options)
    words = read_command(command)
    if words is not None:
        if "task" in spec or "payload" in spec:
            raise click.UsageError("give either a command, or --task and --payload")
        spec |= {"task": "shell", "payload": {"command": words}}
    if "task" not in spec:
        raise click.UsageError("give a command after --, or --task")
    if sum(rule in spec for rule in ("cron", "every", "at")) != 1:
        raise click.UsageError("give exactly one of --cron, --every and --at")
    if options["tz"] is not None and "cron" not in spec:
        raise click.UsageError("--tz requires --cron; --at is a time of this machine")
    schedule, _ = client.put_schedule(name, **spec)
    effect = describe_effect(schedule)
    if spec.get("paused") is False and schedule.get("paused"):
        schedule, effect = client.resume_schedule(name), f"{effect} and resumed"
    announce(schedule, effect, is_json=is_json)


def _read_options(options: dict[str, Any]) -> dict[str, Any]:
    spec = given(options, *options)
    expect = {name: spec.pop(name) for name in EXPECT_FIELDS if name in spec}
    if expect:
        spec["expect"] = expect
    if "payload" in spec:
        spec["payload"] = _parse_json(spec["payload"], "--payload")
    return spec


def _read_file(path: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"cannot read {path}: {error}", param_hint="--file") from error
    value = _parse_json(text, "--file")
    if not isinstance(value, dict):
        raise click.BadParameter("the file must contain one JSON object", param_hint="--file")
    return {name: field for name, field in value.items() if name not in _READ_ONLY}


def _parse_json(text: str, place: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=place) from error


def announce(schedule: Record, what: str, *, is_json: bool) -> None:
    """Print that the schedule was created, paused and so on, and when it fires next."""
    if is_json:
        print_json(schedule)
        return
    fires = schedule.get("next_fires") or []
    when = f"next fire {render_full(fires[0], read_now())}" if fires else "it will not fire"
    if schedule.get("paused"):
        when = "it does not fire until it is resumed"
    click.echo(f"schedule {escape(schedule['name'])} {what}; {when}")
    for warning in schedule.get("warnings") or []:
        click.echo(f"schedo: warning: {escape(str(warning))}", err=True)


@schedules.command()
@click.argument("name", type=SCHEDULE)
@as_json
@connected
def rm(client: Client, name: str, is_json: bool) -> None:
    """Delete the schedule; its jobs stay."""
    client.delete_schedule(name)
    if is_json:
        print_json({"name": name, "deleted": True})
    else:
        click.echo(f"schedule {escape(name)} deleted")


@schedules.command()
@click.argument("name", type=SCHEDULE)
@as_json
@connected
def reset(client: Client, name: str, is_json: bool) -> None:
    """Undo changes by hand.

    The schedule becomes what its owner, code or a file, declares.
    """
    schedule = client.send(schedule_operations.reset_schedule(name))
    is_new = schedule.get("effect") == "changed"
    announce(schedule, "reset" if is_new else "up to date", is_json=is_json)


@schedules.command()
@click.argument("name", type=SCHEDULE)
@click.option("--note", help="Reason, shown with the schedule.")
@as_json
@connected
def pause(client: Client, name: str, note: str | None, is_json: bool) -> None:
    """Pause the schedule: it does not fire until it is resumed."""
    announce(client.pause_schedule(name, note), "paused", is_json=is_json)


@schedules.command()
@click.argument("name", type=SCHEDULE)
@click.option("--from", "start", type=TIME, help="Treat instants since this time as missed runs.")
@as_json
@connected
def resume(client: Client, name: str, start: str | None, is_json: bool) -> None:
    """Resume a paused schedule."""
    announce(client.resume_schedule(name, start), "resumed", is_json=is_json)


@schedules.command()
@click.argument("name", type=SCHEDULE)
@click.option("--overlap", metavar="POLICY", help="Overlap policy instead of the schedule's own.")
@as_json
@connected
def trigger(client: Client, name: str, overlap: str | None, is_json: bool) -> None:
    """Fire the schedule once now. The exit code is 1 if an unfinished run makes it skip."""
    triggered = client.send(schedule_operations.trigger_schedule(name, overlap))
    job = triggered.get("job")
    if is_json:
        print_json(triggered)
    elif job:
        click.echo(f"{escape(job['id'])}  {escape(job['state'])}")
    else:
        blocking = escape(str(triggered.get("blocking_job", "")))
        click.echo(f"schedo: skipped, because job {blocking} is not finished", err=True)
    if not job:
        click.get_current_context().exit(1)
